// The MCP servers of the user's settings of VS Code, as the agent takes them.

import type { McpCapabilities, McpServer } from "@agentclientprotocol/sdk";

export interface FoundServers {
  servers: McpServer[];
  /** What was left out, with the reason. */
  skipped: string[];
}

/**
 * Read the `servers` of VS Code's MCP configuration.
 *
 * variables   values of `${name}`; an entry with any other variable, such as `${input:key}`, is left out
 */
export function readMcpServers(
  servers: unknown,
  variables: Record<string, string>,
  takes: McpCapabilities | undefined,
): FoundServers {
  const found: FoundServers = { servers: [], skipped: [] };
  for (const [name, entry] of Object.entries(isRecord(servers) ? servers : {})) {
    try {
      found.servers.push(server(name, filled(entry, variables), takes));
    } catch (error) {
      found.skipped.push(`${name}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return found;
}

function server(name: string, entry: unknown, takes: McpCapabilities | undefined): McpServer {
  if (!isRecord(entry)) throw new Error("it is no object");
  const { url, command, args, env, headers, type } = entry;
  if (typeof command === "string") {
    for (const member of ["envFile", "cwd"]) if (entry[member] !== undefined) throw new Error(`it has ${member}`);
    return { name, command, args: Array.isArray(args) ? args.map(String) : [], env: pairs(env) };
  }
  if (typeof url !== "string") throw new Error("it has neither a command nor a url");
  const kind = type === "sse" ? "sse" : "http";
  if (takes?.[kind] !== true) throw new Error(`the agent takes no ${kind} servers`);
  return { type: kind, name, url, headers: pairs(headers) };
}

function pairs(values: unknown): { name: string; value: string }[] {
  const all = Object.entries(isRecord(values) ? values : {});
  return all.flatMap(([name, value]) => (value == null ? [] : [{ name, value: String(value as string | number) }]));
}

/** Put values in place of `${name}` in all texts of an entry. */
function filled(value: unknown, variables: Record<string, string>): unknown {
  if (typeof value === "string") {
    return value.replace(/\$\{([^}]*)\}/g, (whole, name: string) => {
      const found = variables[name];
      if (found === undefined) throw new Error(`it needs ${whole}, which only VS Code knows`);
      return found;
    });
  }
  if (Array.isArray(value)) return value.map((each) => filled(each, variables));
  if (!isRecord(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, filled(each, variables)]));
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
