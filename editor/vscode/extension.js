// Starts `decgraph lsp`, and shows beside the text what it says of an algorithm when it is asked to check, trace or explain it.

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");
const { command } = require("./environment");

let client;

// The interpreter that the Python extension has chosen for the workspace; null where it has none, or is not installed.
async function interpreter(folder) {
  const python = vscode.extensions.getExtension("ms-python.python");
  if (!python) return null;
  const { environments } = await python.activate();
  const chosen = environments && environments.getActiveEnvironmentPath(folder && folder.uri);
  const found = chosen && (await environments.resolveEnvironment(chosen));
  return (found && found.executable.uri && found.executable.uri.fsPath) || null;
}

async function start() {
  const folders = vscode.workspace.workspaceFolders || [];
  const found = command({
    setting: vscode.workspace.getConfiguration("decgraph").get("command"),
    folders: folders.map((folder) => folder.uri.fsPath),
    interpreter: await interpreter(folders[0]).catch(() => null),
  });
  client = new LanguageClient(
    "decgraph",
    "decgraph",
    { command: found[0], args: found.slice(1) },
    {
      documentSelector: [{ language: "dec" }],
      initializationOptions: { buttons: [["trace", "decgraph.traceHere"], ["explain", "decgraph.explainHere"]] },
    },
  );
  try {
    await client.start();
  } catch (error) {
    vscode.window.showErrorMessage(
      `decgraph: \`${found[0]}\` does not start (${error.message}). ` +
        "Install it in a checkout of decgraph with pip install '.[editor]', or set decgraph.command to where it is.",
    );
  }
}

async function stop() {
  if (client && client.isRunning()) await client.stop();
}

// Asks the server about an algorithm (of a lens: its file and name; else the one under the cursor) and shows the page beside.
async function show(what, uri, name) {
  const editor = vscode.window.activeTextEditor;
  if (!uri && (!editor || editor.document.languageId !== "dec")) {
    vscode.window.showInformationMessage("decgraph: open a .dec file, and put the cursor into an algorithm");
    return;
  }
  const at = uri ? name : [editor.selection.active.line, editor.selection.active.character];
  let prompt = "";
  if (what === "trace") {
    prompt = await vscode.window.showInputBox({ title: "Trace by the shipped models", prompt: "What the run begins with", value: "def main():" });
    if (prompt === undefined) return;
  }
  const asked = { command: "decgraph.show", arguments: [what, uri || editor.document.uri.toString(), at, prompt] };
  try {
    const page = await vscode.window.withProgress(
      { location: vscode.ProgressLocation.Window, title: `decgraph: ${what}` },
      () => client.sendRequest("workspace/executeCommand", asked),
    );
    const panel = vscode.window.createWebviewPanel(`decgraph.${what}`, page.title, vscode.ViewColumn.Beside, {
      enableScripts: true,
      enableFindWidget: true,
    });
    panel.webview.html = page.html;
  } catch (error) {
    vscode.window.showErrorMessage(`decgraph: ${error.message}`);
  }
}

async function activate(context) {
  for (const what of ["check", "trace", "explain"]) {
    const run = (uri, name) => show(what, typeof uri === "string" ? uri : undefined, name);
    context.subscriptions.push(vscode.commands.registerCommand(`decgraph.${what}Here`, run));
  }
  const restart = async () => {
    await stop();
    await start();
  };
  context.subscriptions.push(
    vscode.commands.registerCommand("decgraph.restart", restart),
    vscode.workspace.onDidChangeConfiguration((change) => change.affectsConfiguration("decgraph.command") && restart()),
  );
  await start();
}

module.exports = { activate, deactivate: stop };
