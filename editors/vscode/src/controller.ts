// Puts the parts together: what the view asks for, what the agent asks for, and the commands of VS Code.

import { homedir } from "node:os";
import { isAbsolute, join } from "node:path";
import * as acp from "@agentclientprotocol/sdk";
import * as vscode from "vscode";
import type { Launch } from "./agent/connection.js";
import { findAgent, installAgent } from "./agent/locate.js";
import type { Action, FromView, Picker } from "./chat/messages.js";
import { ChatView } from "./chat/view.js";
import { Diffs } from "./files/diffs.js";
import { readTextFile, writeTextFile } from "./files/documents.js";
import { LSP_METHODS, publishLanguages, serveLanguages } from "./languages/lsp.js";
import { promptBlocks } from "./session/attach.js";
import { Conversations, type Host } from "./session/conversations.js";
import { elicit } from "./session/elicitation.js";
import { readMcpServers } from "./session/mcp_servers.js";
import { Pictures } from "./session/pictures.js";
import { pickCategory, pickMention, pickOption, pickSlash } from "./session/pickers.js";
import { RunningTurns } from "./session/running_turns.js";
import type { Session, SessionListener } from "./session/session.js";
import { pickSession } from "./session/session_list.js";
import { Terminals } from "./terminal/terminals.js";

const REMEMBERED = "acpAgent.session";
const AUTH_REQUIRED = -32000;

export class Controller implements Host, SessionListener, vscode.Disposable {
  readonly view: ChatView;
  readonly conversations: Conversations;
  readonly diffs = new Diffs();
  readonly pictures = new Pictures((pictures) => {
    this.view.post({ type: "pictures", pictures });
  });
  readonly version: string;
  private readonly terminals: Terminals;
  private readonly output = vscode.window.createOutputChannel("acp-agent");
  private launched: Launch | undefined;
  private readonly running: RunningTurns;

  constructor(private readonly context: vscode.ExtensionContext) {
    this.version = String((context.extension.packageJSON as { version: unknown }).version);
    this.view = new ChatView(context.extensionUri, (message) => {
      void this.guarded(() => this.received(message));
    });
    this.terminals = new Terminals(
      (sessionId, terminalId) => this.conversations.get(sessionId)?.transcript.terminalChanged(terminalId),
      (sessionId) => this.conversations.get(sessionId)?.runningTitle,
    );
    const { storageUri } = context;
    this.running = new RunningTurns(storageUri === undefined ? undefined : join(storageUri.fsPath, "running.json"));
    this.conversations = new Conversations(this, this, (id) => this.terminals.shown(id));
  }

  dispose(): void {
    this.terminals.dispose();
    this.diffs.dispose();
    this.output.dispose();
  }

  // ---------------------------------------------------------------------------- what the agent needs

  async launch(): Promise<Launch | undefined> {
    const [folder] = vscode.workspace.workspaceFolders ?? [];
    if (folder === undefined) throw new Error("No folder is open. Open the folder of your project first.");
    const program = await findAgent(folder.uri);
    if (program === undefined) return undefined;
    const settings = vscode.workspace.getConfiguration("acpAgent");
    this.launched = {
      program,
      args: settings.get<string[]>("args", []),
      env: settings.get<Record<string, string>>("env", {}),
      cwd: folder.uri.fsPath,
    };
    return this.launched;
  }

  capabilities(): acp.ClientCapabilities {
    const settings = vscode.workspace.getConfiguration("acpAgent");
    const notifications = ["lsp/publishDiagnostics", "lsp/didSave"];
    return {
      fs: { readTextFile: true, writeTextFile: true },
      ...(settings.get<boolean>("terminals", true) ? { terminal: true } : {}),
      session: { configOptions: { boolean: {} }, notices: {}, compaction: {} },
      auth: { terminal: true },
      elicitation: { form: {}, url: {} },
      ...(this.lendsLanguages ? { _meta: { lsp: { methods: LSP_METHODS, notifications } } } : {}),
    };
  }

  folders(): string[] {
    return (vscode.workspace.workspaceFolders ?? []).map(({ uri }) => uri.fsPath);
  }

  /** Those of the user. What a folder configures comes with the folder: nothing of it starts unasked. */
  mcpServers(takes: acp.McpCapabilities | undefined): acp.McpServer[] {
    if (!vscode.workspace.getConfiguration("acpAgent").get<boolean>("mcpServers", true)) return [];
    const variables: Record<string, string> = { userHome: homedir(), workspaceFolder: this.folders()[0] ?? "" };
    for (const [name, value] of Object.entries(process.env)) variables[`env:${name}`] = value ?? "";
    const entries = vscode.workspace.getConfiguration("mcp").inspect<unknown>("servers")?.globalValue;
    const { servers, skipped } = readMcpServers(entries, variables, takes);
    for (const each of skipped) this.log(`the MCP server ${each}: it is not handed to the agent\n`);
    return servers;
  }

  serve(app: acp.ClientApp): acp.ClientApp {
    const { client } = acp.methods;
    return serveLanguages(app)
      .onNotification(client.session.update, ({ params }) => {
        this.conversations.get(params.sessionId)?.update(params.update);
      })
      .onRequest(client.session.requestPermission, async ({ params, signal }) => {
        const session = this.conversations.get(params.sessionId);
        return session === undefined ? { outcome: { outcome: "cancelled" } } : session.ask(params, signal);
      })
      .onRequest(client.fs.readTextFile, ({ params }) => readTextFile(params))
      .onRequest(client.fs.writeTextFile, ({ params }) => writeTextFile(params))
      .onRequest(client.terminal.create, ({ params }) => this.terminals.create(params))
      .onRequest(client.terminal.output, ({ params }) => this.terminals.output(params))
      .onRequest(client.terminal.waitForExit, ({ params }) => this.terminals.waitForExit(params))
      .onRequest(client.terminal.kill, ({ params }) => this.terminals.kill(params))
      .onRequest(client.terminal.release, ({ params }) => this.terminals.release(params))
      .onRequest(client.elicitation.create, ({ params, signal }) => elicit(params, signal));
  }

  connected(agent: acp.ClientContext): () => void {
    const publishing = this.lendsLanguages ? publishLanguages(agent) : undefined;
    return () => {
      publishing?.dispose();
      this.terminals.killAll();
    };
  }

  remember(sessionId: string | undefined): void {
    void this.context.workspaceState.update(REMEMBERED, sessionId);
  }

  wasInterrupted(sessionId: string): boolean {
    return this.running.take(sessionId);
  }

  log(text: string): void {
    this.output.append(text);
  }

  private get lendsLanguages(): boolean {
    return vscode.workspace.getConfiguration("acpAgent").get<boolean>("languageServers", true);
  }

  // ------------------------------------------------------------------------------ what sessions tell

  changed(): void {
    this.reset();
  }

  items(session: Session, item: Parameters<ChatView["item"]>[0]): void {
    if (session === this.conversations.current) this.view.item(item);
  }

  appended(session: Session, id: string, text: string): void {
    if (session === this.conversations.current) this.view.append(id, text);
  }

  frame(session: Session): void {
    if (session === this.conversations.current) this.view.post({ type: "frame", frame: this.frameNow() });
    const busy = this.conversations.current?.busy ?? false;
    void vscode.commands.executeCommand("setContext", "acpAgent.busy", busy);
  }

  asked(session: Session, questionId: string, request?: acp.RequestPermissionRequest): void {
    if (request === undefined) {
      void this.diffs.close(questionId);
      return;
    }
    const diff = request.toolCall.content?.find((each) => each.type === "diff");
    if (diff?.type === "diff" && vscode.workspace.getConfiguration("acpAgent").get<boolean>("openDiffs", true)) {
      const part = { type: "diff" as const, path: diff.path, oldText: diff.oldText ?? null, newText: diff.newText };
      void this.diffs.open(part, questionId, true);
    }
    if (session === this.conversations.current && this.view.visible) return;
    const title = `acp-agent asks: ${request.toolCall.title ?? "may a call run?"}`;
    void vscode.window.showInformationMessage(title, "Show").then(async (answer) => {
      if (answer !== "Show") return;
      if (session !== this.conversations.current) this.conversations.show(session);
      await this.view.show({ type: "focus" });
    });
  }

  // -------------------------------------------------------------------------- what the user asks for

  /** Run a request of the user. A failure is shown. */
  async guarded(work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (error) {
      void vscode.window.showErrorMessage(`acp-agent: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  async newSession(): Promise<void> {
    await this.conversations.start();
    await this.conversations.open();
    await this.view.show({ type: "focus" });
  }

  async cancel(): Promise<void> {
    await this.conversations.current?.cancel();
  }

  /** Answer the question whose diff is in the active editor. */
  answerDiff(kind: "allow_once" | "reject_once"): void {
    const questionId = this.diffs.activeQuestion;
    const session = this.conversations.get(questionId?.split("/")[0] ?? "");
    if (questionId === undefined || session === undefined) return;
    const optionId = session.choice(questionId, kind);
    if (optionId !== undefined) session.answer(questionId, optionId);
  }

  async prompt(text: string): Promise<void> {
    const session = this.conversations.current;
    if (session === undefined || this.conversations.state !== "ready") {
      this.view.post({ type: "restore", text });
      throw new Error("The agent is not ready.");
    }
    if (session.busy) {
      this.view.post({ type: "restore", text });
      throw new Error("A turn is running. Press Escape to cancel it.");
    }
    const pictures = this.pictures.all;
    const blocks = [...(await promptBlocks(text, session.cwd)), ...(text.startsWith("/") ? [] : this.pictures.take())];
    this.running.note(session.id, true);
    const code = await session.prompt(text, blocks);
    // A turn that ends because the agent is stopped stays noted: it was interrupted.
    if (this.conversations.alive) this.running.note(session.id, false);
    if (code !== AUTH_REQUIRED) return;
    this.view.post({ type: "restore", text });
    if (this.pictures.all.length === 0) for (const each of pictures) this.pictures.add(each);
    const answer = await vscode.window.showErrorMessage("The agent needs an API key.", "Log In");
    if (answer !== undefined) this.login();
  }

  async pick(picker: Picker): Promise<void> {
    if (picker === "sessions") {
      await this.conversations.start();
      await pickSession(this.conversations);
      await this.view.show({ type: "focus" });
      return;
    }
    const session = this.conversations.current;
    if (session === undefined) throw new Error("The agent is not ready.");
    if (picker === "slash" || picker === "mention") {
      const text =
        picker === "slash" ? await pickSlash(session) : await pickMention(session.cwd, this.lendsLanguages);
      await this.view.show(text === undefined ? { type: "focus" } : { type: "insert", text });
      return;
    }
    const apply = await (picker === "options" ? pickOption(session) : pickCategory(session, picker));
    // The focus comes first: a focus that comes late would close what the user has opened by then.
    await this.view.show({ type: "focus" });
    await apply?.();
  }

  async act(action: Action): Promise<void> {
    switch (action) {
      case "install":
        await installAgent(vscode.workspace.workspaceFolders?.[0]?.uri);
        break;
      case "settings":
        await vscode.commands.executeCommand("workbench.action.openSettings", "acpAgent");
        break;
      case "restart":
        await this.conversations.restart();
        break;
      case "log":
        this.output.show();
        break;
      case "undo":
        await this.prompt("/undo");
        break;
      case "login":
        await this.conversations.start();
        this.login();
        break;
    }
  }

  /** Ask for a provider's key in a terminal, as the agent's authentication method says. */
  private login(): void {
    const method = this.conversations.connection?.about.authMethods?.find(
      (each): each is acp.AuthMethodTerminal & { type: "terminal" } => (each as { type?: string }).type === "terminal",
    );
    if (method === undefined || this.launched === undefined) throw new Error("This agent has no login in a terminal.");
    const terminal = vscode.window.createTerminal({
      name: "acp-agent login",
      shellPath: this.launched.program,
      shellArgs: [...this.launched.args, ...(method.args ?? [])],
      env: { ...this.launched.env, ...method.env },
    });
    terminal.show();
    const watch = vscode.window.onDidCloseTerminal(({ exitStatus }) => {
      if (terminal.exitStatus === undefined) return;
      watch.dispose();
      if (exitStatus?.code !== 0) return;
      void vscode.window.showInformationMessage("The key is stored. Send your prompt now.");
      void this.view.show({ type: "focus" });
    });
  }

  private async received(message: FromView): Promise<void> {
    const session = this.conversations.current;
    switch (message.type) {
      case "ready":
        this.reset();
        await this.conversations.start(this.context.workspaceState.get<string>(REMEMBERED));
        return;
      case "prompt":
        return this.prompt(message.text);
      case "attach":
        this.pictures.add(message.picture);
        return;
      case "attachFile":
        await this.pictures.choose();
        return this.view.show({ type: "focus" });
      case "detach":
        this.pictures.remove(message.index);
        return;
      case "cancel":
        return this.cancel();
      case "answer":
        session?.answer(message.questionId, message.optionId);
        return;
      case "openDiff":
        return this.openDiff(message.itemId, message.index);
      case "openFile":
        return this.openFile(message.path, message.line);
      case "openTerminal":
        if (!this.terminals.reveal(message.terminalId)) throw new Error("This terminal was closed.");
        return;
      case "openLink":
        return this.openLink(message.target);
      case "copy":
        await vscode.env.clipboard.writeText(message.text);
        return;
      case "pick":
        return this.pick(message.picker);
      case "action":
        return this.act(message.action);
    }
  }

  private async openDiff(itemId: string, index: number): Promise<void> {
    const item = this.conversations.current?.transcript.find(itemId);
    if (item?.kind !== "tool") return;
    const part = (item.question?.parts ?? item.parts)[index];
    if (part?.type === "diff") await this.diffs.open(part, item.question?.id);
  }

  private async openFile(path: string, line?: number): Promise<void> {
    const cwd = this.conversations.current?.cwd ?? homedir();
    const uri = vscode.Uri.file(isAbsolute(path) ? path : join(cwd, path));
    const selection = line === undefined ? {} : { selection: new vscode.Range(line - 1, 0, line - 1, 0) };
    await vscode.window.showTextDocument(uri, { preview: true, ...selection });
  }

  /** Open a link of the conversation: a page in the browser, anything else as a file of the session's folder. */
  private async openLink(target: string): Promise<void> {
    if (/^https?:\/\//i.test(target)) {
      await vscode.env.openExternal(vscode.Uri.parse(target));
      return;
    }
    const [place = "", fragment] = target.replace(/^file:\/\//, "").split("#");
    const line = /^L?(\d+)/.exec(fragment ?? "")?.[1] ?? /:(\d+)(?::\d+)?$/.exec(place)?.[1];
    const path = decodeURIComponent(place.replace(/(?::\d+){1,2}$/, ""));
    await this.openFile(path, line === undefined ? undefined : Number(line));
  }

  private reset(): void {
    const items = this.conversations.current?.transcript.items ?? [];
    this.view.post({ type: "reset", frame: this.frameNow(), items });
    this.view.post({ type: "pictures", pictures: this.pictures.all });
  }

  private frameNow() {
    const { state, detail, current, connection } = this.conversations;
    const empty = { title: "", busy: false, plan: [], hasOptions: false };
    const takesPictures = connection?.about.agentCapabilities?.promptCapabilities?.image === true;
    return { agent: state, detail, takesPictures, ...(current?.frame() ?? empty) };
  }
}
