import assert from "node:assert/strict";
import { test } from "node:test";
import { cleanEnvironment } from "../src/agent/environment.js";
import { lines, smallestChange } from "../src/files/text.js";
import { mentions, spell } from "../src/session/mentions.js";
import { OutputBuffer } from "../src/terminal/output.js";
import { plainOutput, tail } from "../src/terminal/text.js";
import { diffLines } from "../webview/diff.js";

test("the output keeps its end, cut between characters", () => {
  const buffer = new OutputBuffer(10);
  buffer.append("0123456789");
  assert.equal(buffer.truncated, false);
  buffer.append("äöü€");
  assert.equal(buffer.truncated, true);
  assert.equal(buffer.text, "9äöü€");
  assert.ok(Buffer.byteLength(buffer.text) <= 10);
});

test("a limit inside a character drops the whole character", () => {
  const buffer = new OutputBuffer(3);
  buffer.append("€€");
  assert.equal(buffer.text, "€");
  buffer.append("😀");
  assert.equal(buffer.text, "");
});

test("a long output stays within its limit", () => {
  const buffer = new OutputBuffer(1000);
  for (let index = 0; index < 5000; index += 1) buffer.append(`line ${index}\n`);
  assert.equal(buffer.text.length, 1000);
  assert.ok(buffer.text.endsWith("line 4999\n"));
});

test("the end of an output is read without the rest", () => {
  const buffer = new OutputBuffer(1000);
  for (const text of ["one ", "€uro ", "three"]) buffer.append(text);
  assert.equal(buffer.end(5), "three");
  assert.equal(buffer.end(10), "uro three"); // the cut is in the sign
  assert.equal(buffer.end(100), "one €uro three");
});

test("output is shown without escapes and with carriage returns done", () => {
  assert.equal(plainOutput("\u001b[31mred\u001b[0m\r\n\u001b]0;title\u0007x\r\n"), "red\nx\n");
  assert.equal(plainOutput("10 %\r55 %\r100 %\n"), "100 %\n");
  assert.equal(plainOutput("loading\rok\n"), "okading\n");
  assert.equal(plainOutput("a\u0007\u0000b"), "ab");
});

test("the tail of an output begins with a whole line", () => {
  assert.equal(tail("first\nsecond\nthird", 10), "third");
  assert.equal(tail("short", 10), "short");
});

test("lines are counted from 1 and keep their ends", () => {
  const text = "a\r\nb\nc";
  assert.equal(lines(text), text);
  assert.equal(lines(text, 2), "b\nc");
  assert.equal(lines(text, 1, 1), "a\r\n");
  assert.equal(lines(text, 9, 5), "");
  assert.equal(lines(text, undefined, 2), "a\r\nb\n");
});

test("the smallest change makes one text of the other", () => {
  const texts = ["", "a", "abc", "aXc", "x\r\ny", "x\ny", "😀", "😁", "aa", "aaa", "one\ntwo\nthree\n", "one\nthree\n"];
  for (const before of texts) {
    for (const now of texts) {
      const { start, end, text } = smallestChange(before, now);
      assert.equal(before.slice(0, start) + text + before.slice(end), now);
      assert.ok(start <= end);
    }
  }
  assert.deepEqual(smallestChange("abc", "aXc"), { start: 1, end: 2, text: "X" });
  assert.deepEqual(smallestChange("😀", "😁"), { start: 0, end: 2, text: "😁" });
  assert.deepEqual(smallestChange("x\r\ny", "x\ny"), { start: 1, end: 3, text: "\n" });
});

test("mentions are words that begin with @", () => {
  assert.deepEqual(mentions('see @a.py, @"my notes.txt" and @src/b.py:3-7.'), [
    { path: "a.py" },
    { path: "my notes.txt" },
    { path: "src/b.py", from: 3, to: 7 },
  ]);
  assert.deepEqual(mentions("mail me@example.org or use @diagnostics, @a @a"), [{ path: "a" }]);
  assert.deepEqual(mentions("@a.py:9"), [{ path: "a.py", from: 9, to: 9 }]);
});

test("a mention is read as it was spelled", () => {
  for (const mention of [{ path: "a b.py" }, { path: "a.py", from: 2, to: 9 }, { path: "odd)." }, { path: "x", from: 1, to: 1 }]) {
    assert.deepEqual(mentions(`go ${spell(mention)} on`), [mention]);
  }
});

test("the small diff has the changed lines with some around them", () => {
  const before = Array.from({ length: 20 }, (_, index) => `line ${index}`).join("\n") + "\n";
  const shown = diffLines(before, before.replace("line 10", "line ten"));
  assert.deepEqual(
    shown.map(({ sign }) => sign).join(""),
    "…   -+   …",
  );
  assert.deepEqual(diffLines("", "a\nb\n").map(({ sign }) => sign), ["+", "+"]);
  assert.deepEqual(diffLines("a\nb\nc\n", "a\nc\n").filter(({ sign }) => sign === "-"), [{ sign: "-", text: "b" }]);
});

test("programs do not get the variables of VS Code's own processes", () => {
  const environ = { PATH: "/bin", ELECTRON_RUN_AS_NODE: "1", VSCODE_IPC_HOOK: "x", HOME: "/h" };
  assert.deepEqual(cleanEnvironment(environ, { ACP_AGENT_MODEL: "m" }), { PATH: "/bin", HOME: "/h", ACP_AGENT_MODEL: "m" });
});
