// Runs the extension without VS Code: `node extension_harness.js EXTENSION SCENE`. SCENE is JSON: the settings, folders and
// interpreter that VS Code would report, and the commands to run. Prints what the extension did, as JSON.

const Module = require("module");
const path = require("path");

const scene = JSON.parse(process.argv[3]);
const did = { registered: [], started: null, asked: [], pages: [], errors: [], said: [] };
const registered = {};
let changed;

const vscode = {
  workspace: {
    workspaceFolders: scene.folders.map((folder) => ({ uri: { fsPath: folder } })),
    getConfiguration: () => ({ get: () => scene.setting }),
    onDidChangeConfiguration: (run) => {
      changed = run;
      return {};
    },
  },
  extensions: {
    getExtension: (name) =>
      name === "ms-python.python" && scene.interpreter
        ? {
            activate: async () => ({
              environments: {
                getActiveEnvironmentPath: () => ({ path: scene.interpreter }),
                resolveEnvironment: async (chosen) => ({ executable: { uri: { fsPath: chosen.path } } }),
              },
            }),
          }
        : undefined,
  },
  commands: {
    registerCommand: (name, run) => {
      did.registered.push(name);
      registered[name] = run;
      return {};
    },
  },
  window: {
    activeTextEditor: scene.cursor && {
      document: { languageId: "dec", uri: { toString: () => "file:///work/mine.dec" } },
      selection: { active: { line: scene.cursor[0], character: scene.cursor[1] } },
    },
    showErrorMessage: (text) => did.errors.push(text),
    showInformationMessage: (text) => did.said.push(text),
    showInputBox: async (given) => (scene.prompt === undefined ? given.value : scene.prompt),
    withProgress: (_, run) => run(),
    createWebviewPanel: (kind, title, column) => {
      const panel = { webview: { set html(text) { did.pages.push({ title, column, html: text }); } } };
      return panel;
    },
  },
  ProgressLocation: { Window: 10 },
  ViewColumn: { Beside: -2 },
};

class LanguageClient {
  constructor(id, name, server, options) {
    did.started = { server, options };
  }
  async start() {
    if (scene.fails) throw new Error(scene.fails);
  }
  isRunning() {
    return false;
  }
  async sendRequest(kind, given) {
    did.asked.push([kind, given]);
    if (scene.refused) throw new Error(scene.refused);
    return { title: "a title", html: "<p>a page</p>" };
  }
}

const load = Module._load;
Module._load = function (name, ...rest) {
  if (name === "vscode") return vscode;
  if (name === "vscode-languageclient/node") return { LanguageClient };
  return load.call(this, name, ...rest);
};

(async () => {
  const extension = require(path.resolve(process.argv[2], "extension.js"));
  await extension.activate({ subscriptions: [] });
  for (const [name, ...given] of scene.commands) await registered[name](...given);
  if (scene.changes) {
    scene.setting = scene.changes;
    await changed({ affectsConfiguration: (name) => name === "decgraph.command" });
  }
  console.log(JSON.stringify(did));
})();
