// Finds what starts the language server. No setting is needed where decgraph is in the workspace's own environment.

const fs = require("fs");
const path = require("path");

const FOLDERS = [".venv", "venv"];

// The program `decgraph` beside a Python, or in an environment's folder of programs; null where there is none.
function beside(folder, platform = process.platform) {
  const found = path.join(folder, platform === "win32" ? "decgraph.exe" : "decgraph");
  return fs.existsSync(found) ? found : null;
}

// The command as a list: the setting's, else that of the first environment which has decgraph: the workspace's .venv, the
// interpreter that the Python extension has chosen, and last whatever the PATH has.
function command({ setting, folders, interpreter, platform = process.platform }) {
  if (setting && setting.length) return setting;
  for (const folder of folders) {
    for (const name of FOLDERS) {
      const found = beside(path.join(folder, name, platform === "win32" ? "Scripts" : "bin"), platform);
      if (found) return [found, "lsp"];
    }
  }
  const found = interpreter ? beside(path.dirname(interpreter), platform) : null;
  return [found || "decgraph", "lsp"];
}

module.exports = { command };
