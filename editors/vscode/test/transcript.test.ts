import assert from "node:assert/strict";
import { test } from "node:test";
import type { SessionUpdate } from "@agentclientprotocol/sdk";
import type { Item, ToolItem } from "../src/chat/messages.js";
import { Transcript } from "../src/session/transcript.js";

function made() {
  const changed: string[] = [];
  const appended: string[] = [];
  const outputs = new Map<string, { output: string; exit?: string }>();
  const transcript = new Transcript(
    { changed: (item) => changed.push(item.id), appended: (id, text) => appended.push(`${id}+${text}`) },
    (id) => outputs.get(id),
  );
  return { transcript, changed, appended, outputs };
}

const said = (text: string, messageId: string, kind = "agent_message_chunk") =>
  ({ sessionUpdate: kind, content: { type: "text", text }, messageId }) as SessionUpdate;
const call = (more: object) =>
  ({ sessionUpdate: "tool_call", toolCallId: "c1", title: "ls", kind: "execute", status: "in_progress", ...more }) as SessionUpdate;
const update = (more: object) => ({ sessionUpdate: "tool_call_update", toolCallId: "c1", ...more }) as SessionUpdate;

function tool(items: Item[]): ToolItem {
  const found = items.find((each) => each.kind === "tool");
  assert.ok(found?.kind === "tool");
  return found;
}

test("pieces of one message become one item, told as appended text", () => {
  const { transcript, changed, appended } = made();
  transcript.apply(said("a", "m1"));
  transcript.apply(said("b", "m1"));
  assert.deepEqual(transcript.items.map((item) => item.kind !== "tool" && item.text), ["ab"]);
  assert.equal(changed.length, 1);
  assert.deepEqual(appended, ["agent:m1+b"]);
});

test("two messages of one turn are not glued together", () => {
  const { transcript } = made();
  transcript.apply(said("places.", "m1"));
  transcript.apply(said("And now", "m2"));
  assert.equal(transcript.items.length, 2);
});

test("a message that goes on behind a tool call stands behind it", () => {
  const { transcript } = made();
  transcript.apply(said("before", "m1"));
  transcript.apply(call({}));
  transcript.apply(said("after", "m1"));
  assert.deepEqual(transcript.items.map(({ kind }) => kind), ["agent", "tool", "agent"]);
});

test("a call of a sub-agent knows the call that gave it work, also when only an update says so", () => {
  const { transcript } = made();
  const parent = { claudeCode: { parentToolUseId: "c1" } };
  transcript.apply(call({}));
  transcript.apply(call({ toolCallId: "c2", _meta: parent }));
  transcript.apply(call({ toolCallId: "c3" }));
  transcript.apply(update({ toolCallId: "c3", _meta: parent }));
  assert.deepEqual(transcript.items.map((item) => item.kind === "tool" && item.parent), [undefined, "tool:c1", "tool:c1"]);
});

test("what the user sent and the agent echoes is shown once", () => {
  const { transcript } = made();
  transcript.sent("hello @a.py");
  transcript.apply(said("hello @a.py", "u1", "user_message_chunk"));
  assert.equal(transcript.items.length, 1);
  transcript.apply(said("answer", "m1"));
  transcript.apply(said("hello @a.py", "u2", "user_message_chunk"));
  assert.equal(transcript.items.length, 3);
});

test("a loaded prompt does not name a file twice", () => {
  const { transcript } = made();
  const attached = (uri: string) =>
    ({ sessionUpdate: "user_message_chunk", content: { type: "resource", resource: { uri, text: "x" } }, messageId: "u1" }) as SessionUpdate;
  transcript.apply(said("Look at @a%20b.py:1-3", "u1", "user_message_chunk"));
  transcript.apply(said("", "u1", "user_message_chunk"));
  transcript.apply(attached("file:///w/c.py#L1-L3"));
  transcript.apply(attached("file:///w/c.py#L4-L5"));
  assert.deepEqual(transcript.items.map((item) => item.kind !== "tool" && item.text), ["Look at @a%20b.py:1-3 c.py"]);
});

test("an update leaves out what did not change, and has the duration", () => {
  const { transcript } = made();
  transcript.apply(call({ rawInput: { command: "ls -la" }, _meta: { claudeCode: { startedAt: "2026-01-01T00:00:00Z" } } }));
  transcript.apply(update({ status: "completed", rawOutput: { output: "a.py" }, _meta: { claudeCode: { elapsedMs: 67 } } }));
  const item = tool(transcript.items);
  assert.deepEqual(
    [item.title, item.toolKind, item.status, item.input, item.output, item.elapsedMs, item.startedAt],
    ["ls", "execute", "completed", "ls -la", "a.py", 67, Date.parse("2026-01-01T00:00:00Z")],
  );
});

test("an update of an unknown call makes a card and fails nothing", () => {
  const { transcript } = made();
  transcript.apply(update({ status: "completed" }));
  assert.equal(tool(transcript.items).status, "completed");
});

test("the output of an embedded terminal follows the terminal", () => {
  const { transcript, outputs } = made();
  transcript.apply(call({ content: [{ type: "terminal", terminalId: "t1" }] }));
  outputs.set("t1", { output: "line 1", exit: "exit code 0" });
  transcript.terminalChanged("t1");
  assert.deepEqual(tool(transcript.items).parts, [
    { type: "terminal", terminalId: "t1", output: "line 1", exit: "exit code 0" },
  ]);
});

test("a question shows the exact command first and once", () => {
  const { transcript } = made();
  transcript.apply(call({}));
  const text = "cannot be checked: it uses a loop\n\nThe whole text:\n\n```\nls; ls\n```";
  const content = [{ type: "content" as const, content: { type: "text" as const, text } }];
  transcript.ask({ toolCallId: "c1", rawInput: { command: "ls; ls" }, content }, { id: "q", choices: [] });
  const { question } = tool(transcript.items);
  assert.equal(question?.command, "ls; ls");
  assert.deepEqual(question.parts, [{ type: "text", text: "cannot be checked: it uses a loop" }]);
  transcript.answered("q");
  assert.equal(tool(transcript.items).question, undefined);
});

test("a command at the head of a question's text is shown once, a folded one as it is", () => {
  const long = `echo ${"many words ".repeat(20)}end`;
  for (const [command, text] of [["ls; ls", "```\nls; ls\n```\n\nit uses a loop"], [long, `\`\`\`\n${long.slice(0, 93)}\n\u21aa ${long.slice(93)}\n\`\`\`\n\nit uses a loop`]] as const) {
    const { transcript } = made();
    transcript.apply(call({}));
    const content = [{ type: "content" as const, content: { type: "text" as const, text } }];
    transcript.ask({ toolCallId: "c1", rawInput: { command }, content }, { id: "q", choices: [] });
    const { question } = tool(transcript.items);
    assert.equal(question?.command, command);
    assert.deepEqual(question.parts, [{ type: "text", text: "it uses a loop" }]);
  }
});

test("a text that is not the command is never left out of a question", () => {
  const { transcript } = made();
  transcript.apply(call({}));
  const text = "The whole text:\n\n```\nls; rm -r x\n```";
  const content = [{ type: "content" as const, content: { type: "text" as const, text } }];
  transcript.ask({ toolCallId: "c1", rawInput: { command: "ls" }, content }, { id: "q", choices: [] });
  assert.deepEqual(tool(transcript.items).question?.parts, [{ type: "text", text }]);
});

test("calls that are open when a turn ends were interrupted", () => {
  const { transcript } = made();
  transcript.apply(call({}));
  transcript.ended();
  assert.deepEqual([tool(transcript.items).status, tool(transcript.items).output], ["failed", "interrupted"]);
});

test("pictures come as data of a known type only", () => {
  const { transcript } = made();
  const image = (mimeType: string) => ({ type: "content", content: { type: "image", data: "AAAA", mimeType } });
  transcript.apply(call({ content: [image("image/png"), image("image/svg+xml")] }));
  assert.deepEqual(tool(transcript.items).parts, [
    { type: "image", source: "data:image/png;base64,AAAA" },
    { type: "text", text: "[image]" },
  ]);
});

test("updates of unknown kinds change nothing", () => {
  const { transcript } = made();
  assert.equal(transcript.apply({ sessionUpdate: "of_the_future" } as unknown as SessionUpdate), false);
  assert.equal(transcript.items.length, 0);
});

const PICTURE = { type: "image", mimeType: "image/png", data: "AAAA" } as const;
const pictured = { sessionUpdate: "user_message_chunk", content: PICTURE } as SessionUpdate;

test("a picture of a prompt is shown with it, once where the agent echoes it", () => {
  const { transcript } = made();
  transcript.sent("look", ["data:image/png;base64,AAAA"]);
  transcript.apply(pictured);
  assert.deepEqual(transcript.items.map((item) => item.kind === "user" && item.pictures), [["data:image/png;base64,AAAA"]]);
});

test("a loaded prompt has its pictures, with text and without", () => {
  const { transcript } = made();
  transcript.apply(said("look", "u1", "user_message_chunk"));
  transcript.apply(pictured);
  transcript.apply(said("answer", "m1"));
  transcript.apply(pictured);
  const shown = transcript.items.map((item) => [item.kind, item.kind === "user" && item.pictures?.length]);
  assert.deepEqual(shown, [["user", 1], ["agent", false], ["user", 1]]);
});

test("the time in which the user was asked is no time of the call", () => {
  const { transcript } = made();
  transcript.apply(call({}));
  transcript.ask({ toolCallId: "c1" }, { id: "q1", choices: [] });
  const until = Date.now() + 20;
  while (Date.now() < until);
  transcript.answered("q1");
  const waited = tool(transcript.items).waitedMs ?? 0;
  assert.ok(waited >= 20 && waited < 10_000);
});
