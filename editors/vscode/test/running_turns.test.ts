import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { RunningTurns } from "../src/session/running_turns.js";

const place = () => join(mkdtempSync(join(tmpdir(), "running-")), "new folder", "running.json");

test("a turn that ran when the window was closed is known in the next one, once", () => {
  const file = place();
  const before = new RunningTurns(file);
  before.note("a", true);
  before.note("b", true);
  before.note("b", false);
  const after = new RunningTurns(file);
  assert.deepEqual([after.take("a"), after.take("a"), after.take("b")], [true, false, false]);
  assert.equal(new RunningTurns(file).take("a"), false);
});

test("a damaged file and a missing folder mean that nothing ran", () => {
  const file = join(mkdtempSync(join(tmpdir(), "running-")), "running.json");
  writeFileSync(file, "{");
  assert.equal(new RunningTurns(file).take("a"), false);
  assert.equal(new RunningTurns(undefined).take("a"), false);
});
