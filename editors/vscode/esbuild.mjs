// Bundles the extension (dist/extension.cjs), the chat view (dist/chat.js) and, with --tests, the unit tests.
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const production = process.argv.includes("--production");
const common = {
  bundle: true,
  minify: production,
  sourcemap: !production,
  legalComments: "none",
  logLevel: "warning",
  metafile: true,
};

if (process.argv.includes("--tests")) {
  const tests = readdirSync("test").filter((name) => name.endsWith(".test.ts"));
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
  const extension = await build({
    ...common,
    entryPoints: ["src/extension.ts"],
    outfile: "dist/extension.cjs",
    platform: "node",
    format: "cjs",
    target: "node20",
    external: ["vscode"],
  });
  const chat = await build({
    ...common,
    entryPoints: ["webview/main.ts"],
    outfile: "dist/chat.js",
    platform: "browser",
    format: "iife",
    target: "es2022",
  });
  writeFileSync("dist/NOTICES.txt", notices([extension, chat]));
}

/** Return the licenses of the packages that are in the bundles. */
function notices(builds) {
  const inputs = builds.flatMap(({ metafile }) => Object.keys(metafile.inputs));
  const folders = new Set(inputs.flatMap((path) => /^node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path) ?? []));
  return [...folders].sort().map(notice).join(`\n${"-".repeat(80)}\n\n`);
}

function notice(folder) {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  const text = file !== undefined && existsSync(join(folder, file)) ? readFileSync(join(folder, file), "utf8") : "";
  return `${name} ${version} (${license})\n\n${text}`;
}
