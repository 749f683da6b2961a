#!/bin/sh
# Installs Azurite, the emulator of Azure's blob store, once: in ~/.cache/windfall/azurite, or where WINDFALL_AZURITE says.
set -e
folder=${WINDFALL_AZURITE:-$HOME/.cache/windfall/azurite}
test -e "$folder/node_modules/.bin/azurite-blob" && exit 0
command -v npm >/dev/null || { echo "npm is missing: apt-get install npm" >&2; exit 1; }
mkdir -p "$folder"
cd "$folder"
npm install --silent --no-audit --no-fund azurite@3
