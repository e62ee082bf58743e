// Bundles the extension (dist/extension.cjs), the chat view (dist/chat.js) and, with --tests, the unit tests.
import { readdirSync } from "node:fs";
import { build } from "esbuild";

const production = process.argv.includes("--production");
const common = { bundle: true, minify: production, sourcemap: !production, legalComments: "none", logLevel: "warning" };
const tests = readdirSync("test").filter((name) => name.endsWith(".test.ts"));

if (process.argv.includes("--tests")) {
  await build({
    ...common,
    entryPoints: tests.map((name) => `test/${name}`),
    outdir: "dist-test",
    outExtension: { ".js": ".mjs" },
    platform: "node",
    format: "esm",
    target: "node20",
  });
} else {
  await build({
    ...common,
    entryPoints: ["src/extension.ts"],
    outfile: "dist/extension.cjs",
    platform: "node",
    format: "cjs",
    target: "node20",
    external: ["vscode"],
  });
  await build({
    ...common,
    entryPoints: ["webview/main.ts"],
    outfile: "dist/chat.js",
    platform: "browser",
    format: "iife",
    target: "es2022",
  });
}
