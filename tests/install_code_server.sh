#!/usr/bin/env bash
# VS Code in a browser (code-server, from the npm registry) for tests/editor/test_vscode.py: into a folder, without what
# its install script downloads from elsewhere (ripgrep, which only searches files). Needs Node 20, g++, make, and Debian's
# libkrb5-dev. Minutes.
#
#     tests/install_code_server.sh ~/code-server
#     DECGRAPH_CODE_SERVER=~/code-server/node_modules/.bin/code-server .venv/bin/python -m pytest -m nightly tests/editor
set -euo pipefail
folder=${1:?"where to?"}
mkdir -p "$folder"
cd "$folder"
npm install --no-audit --no-fund --ignore-scripts code-server@4.100.3
(cd node_modules/argon2 && npx node-pre-gyp rebuild --build-from-source)
cd node_modules/code-server/lib/vscode
npm install --omit=dev --no-audit --no-fund --ignore-scripts
npm_config_yes=true npm rebuild @parcel/watcher node-pty @vscode/spdlog native-watchdog kerberos @vscode/sqlite3
