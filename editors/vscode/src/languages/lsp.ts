// The language servers and problems of VS Code, lent to the agent by its extension methods (docs/sessions.md there).

import * as acp from "@agentclientprotocol/sdk";
import * as vscode from "vscode";

const PREFIX = "_acp_agent/";
const MOST = 1000;
/** Milliseconds in which changes of problems are collected. */
const PUBLISH_MS = 300;
const MOST_FILES = 200;

interface Asked {
  uri: string;
  position?: vscode.Position;
  range?: vscode.Range;
  query?: string;
  includeDeclaration: boolean;
}

type Handler = (asked: Asked) => Promise<unknown>;

const HANDLERS: Record<string, Handler> = {
  "lsp/hover": hover,
  "lsp/definition": (asked) => places("vscode.executeDefinitionProvider", asked),
  "lsp/references": references,
  "lsp/diagnostics": (asked) => Promise.resolve(vscode.languages.getDiagnostics(file(asked)).map(diagnostic)),
  "lsp/documentSymbols": documentSymbols,
  "lsp/workspaceSymbol": workspaceSymbol,
  "lsp/codeActions": codeActions,
};

/** The methods as `_meta.lsp` of the client's capabilities names them. */
export const LSP_METHODS = Object.keys(HANDLERS).map((name) => PREFIX + name);

/** Serve the requests of the agent. */
export function serveLanguages(app: acp.ClientApp): acp.ClientApp {
  for (const [name, handle] of Object.entries(HANDLERS)) {
    app.onRequest(PREFIX + name, readAsked, ({ params }) => handle(params));
  }
  return app;
}

/** Tell the agent of problems and saved files for as long as the returned object is not disposed. */
export function publishLanguages(agent: acp.ClientContext): vscode.Disposable {
  const waiting = new Map<string, vscode.Uri>();
  let timer: NodeJS.Timeout | undefined;
  const tell = (method: string, params: object) => {
    agent.notify(PREFIX + method, params).catch(() => undefined); // the agent is gone
  };
  const flush = () => {
    timer = undefined;
    for (const uri of [...waiting.values()].slice(0, MOST_FILES)) {
      const diagnostics = vscode.languages.getDiagnostics(uri).map(diagnostic);
      tell("lsp/publishDiagnostics", { uri: uri.toString(), diagnostics });
    }
    waiting.clear();
  };
  const later = (uris: readonly vscode.Uri[]) => {
    for (const uri of uris) if (uri.scheme === "file") waiting.set(uri.toString(), uri);
    timer ??= setTimeout(flush, PUBLISH_MS);
  };
  later(vscode.languages.getDiagnostics().map(([uri]) => uri));
  return vscode.Disposable.from(
    vscode.languages.onDidChangeDiagnostics(({ uris }) => {
      later(uris);
    }),
    vscode.workspace.onDidSaveTextDocument(({ uri }) => {
      if (uri.scheme === "file") tell("lsp/didSave", { uri: uri.toString() });
    }),
    new vscode.Disposable(() => {
      clearTimeout(timer);
    }),
  );
}

function readAsked(params: unknown): Asked {
  if (typeof params !== "object" || params === null) throw acp.RequestError.invalidParams();
  const { uri, query, range, ...rest } = params as Record<string, unknown>;
  const at = "position" in rest ? rest.position : rest;
  const position = readPosition(at);
  const asked: Asked = { uri: typeof uri === "string" ? uri : "", includeDeclaration: rest.includeDeclaration !== false };
  if (position !== undefined) asked.position = position;
  if (typeof query === "string") asked.query = query;
  if (typeof range === "object" && range !== null) {
    const { start, end } = range as Record<string, unknown>;
    const from = readPosition(start);
    const to = readPosition(end);
    if (from !== undefined && to !== undefined) asked.range = new vscode.Range(from, to);
  }
  return asked;
}

function readPosition(value: unknown): vscode.Position | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { line, character } = value as Record<string, unknown>;
  return typeof line === "number" && typeof character === "number" && line >= 0 && character >= 0
    ? new vscode.Position(line, character)
    : undefined;
}

function file(asked: Asked): vscode.Uri {
  const uri = vscode.Uri.parse(asked.uri);
  if (uri.scheme !== "file") throw acp.RequestError.invalidParams(undefined, "expected the URI of a file");
  return uri;
}

/** Language servers answer for documents that are open. */
async function opened(asked: Asked): Promise<vscode.Uri> {
  const uri = file(asked);
  try {
    await vscode.workspace.openTextDocument(uri);
  } catch {
    throw acp.RequestError.resourceNotFound(asked.uri);
  }
  return uri;
}

function place(asked: Asked): vscode.Position {
  if (asked.position === undefined) throw acp.RequestError.invalidParams(undefined, "expected a position");
  return asked.position;
}

async function hover(asked: Asked): Promise<unknown> {
  const uri = await opened(asked);
  const found = await run<vscode.Hover[]>("vscode.executeHoverProvider", uri, place(asked));
  const said = (found ?? []).flatMap((each) => each.contents);
  const contents = said.map((each) =>
    typeof each === "string" ? each : "language" in each ? each : { value: each.value },
  );
  return contents.length === 0 ? null : { contents };
}

interface Place {
  uri: string;
  range: object;
}

/** VS Code always includes the declaration. It is taken out where the agent does not want it. */
async function references(asked: Asked): Promise<Place[]> {
  const found = await places("vscode.executeReferenceProvider", asked);
  if (asked.includeDeclaration) return found;
  const declared = (await places("vscode.executeDefinitionProvider", asked)).map((each) => JSON.stringify(each));
  return found.filter((each) => !declared.includes(JSON.stringify(each)));
}

async function places(command: string, asked: Asked): Promise<Place[]> {
  const uri = await opened(asked);
  const found = (await run<(vscode.Location | vscode.LocationLink)[]>(command, uri, place(asked))) ?? [];
  return found.slice(0, MOST).map((each) =>
    "targetUri" in each
      ? { uri: each.targetUri.toString(), range: range(each.targetSelectionRange ?? each.targetRange) }
      : { uri: each.uri.toString(), range: range(each.range) },
  );
}

async function documentSymbols(asked: Asked): Promise<unknown> {
  const uri = await opened(asked);
  const found = await run<(vscode.DocumentSymbol | vscode.SymbolInformation)[]>(
    "vscode.executeDocumentSymbolProvider",
    uri,
  );
  return (found ?? []).map(symbol);
}

function symbol(each: vscode.DocumentSymbol | vscode.SymbolInformation): object {
  const kind = each.kind + 1; // VS Code counts kinds from 0, the Language Server Protocol from 1
  if (!("children" in each)) {
    const location = { uri: each.location.uri.toString(), range: range(each.location.range) };
    return { name: each.name, kind, location };
  }
  const ranges = { range: range(each.range), selectionRange: range(each.selectionRange) };
  return { name: each.name, kind, ...ranges, children: each.children.map(symbol) };
}

async function workspaceSymbol(asked: Asked): Promise<unknown> {
  const found = await run<vscode.SymbolInformation[]>("vscode.executeWorkspaceSymbolProvider", asked.query ?? "");
  return (found ?? []).slice(0, MOST).map(symbol);
}

async function codeActions(asked: Asked): Promise<unknown> {
  const uri = await opened(asked);
  const where = asked.range ?? new vscode.Range(place(asked), place(asked));
  const found = await run<vscode.CodeAction[]>("vscode.executeCodeActionProvider", uri, where, undefined, 20);
  return (found ?? []).map((action) => ({
    title: action.title,
    kind: action.kind?.value,
    isPreferred: action.isPreferred,
    ...(action.edit === undefined ? {} : { edit: { changes: changes(action.edit) } }),
  }));
}

function changes(edit: vscode.WorkspaceEdit): Record<string, object[]> {
  return Object.fromEntries(
    edit
      .entries()
      .map(([uri, edits]) => [
        uri.toString(),
        edits.map((each) => ({ range: range(each.range), newText: each.newText })),
      ]),
  );
}

function diagnostic(each: vscode.Diagnostic): object {
  const code = typeof each.code === "object" ? each.code.value : each.code;
  return {
    range: range(each.range),
    severity: each.severity + 1,
    message: each.message,
    ...(code === undefined ? {} : { code }),
    ...(each.source === undefined ? {} : { source: each.source }),
  };
}

function range({ start, end }: vscode.Range): object {
  return {
    start: { line: start.line, character: start.character },
    end: { line: end.line, character: end.character },
  };
}

function run<T>(command: string, ...args: unknown[]): Thenable<T | undefined> {
  return vscode.commands.executeCommand<T | undefined>(command, ...args);
}
