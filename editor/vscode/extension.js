// Starts `decgraph lsp` and hands everything to it.

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

async function activate(context) {
  const [command, ...args] = vscode.workspace.getConfiguration("decgraph").get("command");
  client = new LanguageClient(
    "decgraph",
    "decgraph",
    { command, args },
    { documentSelector: [{ language: "dec" }] },
  );
  context.subscriptions.push(client);
  try {
    await client.start();
  } catch (error) {
    vscode.window.showErrorMessage(
      `decgraph: \`${command}\` does not start (${error.message}). ` +
        "Install it in a checkout of decgraph with pip install '.[editor]', or set decgraph.command to where it is.",
    );
  }
}

function deactivate() {
  return client && client.isRunning() ? client.stop() : undefined;
}

module.exports = { activate, deactivate };
