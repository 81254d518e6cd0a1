#!/usr/bin/env bash
# Makes ../charts/echarts.js anew, from what package-lock.json pins. Needs Node and npm; Lockstep itself does not.
#
# To move to another version: change package.json, npm install --package-lock-only --omit-lockfile-registry-resolved, ./build.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

npm ci --no-audit --no-fund
version=$(node -p 'require("echarts/package.json").version')
zrender=$(node -p 'require("zrender/package.json").version')
esbuild=$(node -p 'require("esbuild/package.json").version')

# --charset=ascii: what is embedded is the same bytes whatever the page around it is declared to be.
npx --no-install esbuild entry.js --bundle --minify --format=iife --global-name=echarts --target=es2020 --charset=ascii \
  --define:process.env.NODE_ENV='"production"' --legal-comments=none --outfile=echarts.body.js
cat >../charts/echarts.js - echarts.body.js <<HEADER
/*!
 * Apache ECharts $version (Apache-2.0, licence and notice in LICENSE-echarts and NOTICE-echarts), with zrender $zrender (BSD-3-Clause,
 * LICENSE-zrender), d3 in part (BSD-3-Clause, LICENSE-d3) and tslib (0BSD).
 * Copyright 2017-2026 The Apache Software Foundation; copyright 2017 Baidu Inc.; copyright 2010-2017 Mike Bostock.
 * Not as published: reduced by internal/cli/contention/page/build/build.sh, with esbuild $esbuild, to what entry.js there names, and minified.
 */
HEADER
rm echarts.body.js
for licence in echarts/LICENSE echarts/NOTICE zrender/LICENSE echarts/licenses/LICENSE-d3; do
  case $licence in
    */LICENSE-d3) name=LICENSE-d3 ;;
    *) name=${licence#*/}-${licence%%/*} ;;
  esac
  cp "node_modules/$licence" "../charts/$name"
done
(cd ../charts && sha256sum echarts.js | tee echarts.js.sha256)
