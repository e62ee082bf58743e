import assert from "node:assert/strict";
import { test } from "node:test";
import { readMcpServers } from "../src/session/mcp_servers.js";

const VARIABLES = { userHome: "/home/ann", workspaceFolder: "/work/größe", "env:SHOP": "open" };

test("a server of VS Code's settings becomes one of ACP, with its variables filled in", () => {
  const entry = { type: "stdio", command: "${userHome}/bin/server", args: ["--root", "${workspaceFolder}"], env: { SHOP: "${env:SHOP}", OLD: null } };
  const web = { type: "http", url: "https://mcp.example/x", headers: { "X-Shop": "1" } };
  assert.deepEqual(readMcpServers({ local: entry, web }, VARIABLES, { http: true }), {
    servers: [
      { name: "local", command: "/home/ann/bin/server", args: ["--root", "/work/größe"], env: [{ name: "SHOP", value: "open" }] },
      { type: "http", name: "web", url: "https://mcp.example/x", headers: [{ name: "X-Shop", value: "1" }] },
    ],
    skipped: [],
  });
});

test("a server that needs more than the agent gets is left out, and said", () => {
  const servers = {
    secret: { command: "a", env: { KEY: "${input:key}" } },
    file: { command: "a", envFile: ".env" },
    sse: { type: "sse", url: "https://mcp.example/sse" },
    odd: 3,
  };
  const { servers: found, skipped } = readMcpServers(servers, VARIABLES, { http: true });
  assert.deepEqual(found, []);
  assert.deepEqual(skipped, [
    "secret: it needs ${input:key}, which only VS Code knows",
    "file: it has envFile",
    "sse: the agent takes no sse servers",
    "odd: it is no object",
  ]);
});

test("no settings are no servers", () => {
  assert.deepEqual(readMcpServers(undefined, VARIABLES, undefined), { servers: [], skipped: [] });
});
