// The part of the tour that is turns: content, tools, questions, ends.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { check, equal, INVALID_REQUEST, refused, step } from "./checks.mjs";

const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** Prompts, and all that comes of them. */
export async function turns(me) {
  await step("session/prompt with text, image, resource and link", async () => {
    const resource = { uri: "file:///notes.md", mimeType: "text/markdown", text: "# embedded" };
    writeFileSync(join(me.home.work, "linked.txt"), "linked\n");
    const { stopReason } = await me.prompt(
      { type: "text", text: "Look at the contents" },
      { type: "image", data: PIXEL, mimeType: "image/png" },
      { type: "resource", resource },
      { type: "resource_link", uri: `file://${me.home.work}/linked.txt`, name: "linked.txt" },
    );
    equal([stopReason, me.said("agent_message_chunk")], ["end_turn", "I see all of it."]);
    equal(me.said("agent_thought_chunk"), "A picture and more.");
    const { used, size } = await me.update("usage_update");
    check(used > 0 && size > used, `usage ${used} of ${size}`);
    const notice = await me.update("notice");
    check(notice.title.includes("unusable"), `the server that cannot be used is not mentioned: ${notice.title}`);
    return `${used} of ${size} tokens; ${notice.severity}: ${notice.title}`;
  });
  await step("session_info_update", async () => (await me.update("session_info_update", ({ title }) => title)).title);
  const poem = join(me.home.work, "poem.txt");
  await step("an edit: fs/read_text_file, session/request_permission, fs/write_text_file", async () => {
    writeFileSync(poem, "on disk\n");
    me.unsaved.set(poem, "roses are red\nviolets are red\n");
    equal((await me.say("Mend the poem")).stopReason, "end_turn");
    equal(readFileSync(poem, "utf8"), "roses are red\nviolets are blue\n");
    const [{ toolCall, options }] = me.permissions;
    equal(options.map(({ kind }) => kind).sort(), ["allow_always", "allow_always", "allow_once", "reject_always", "reject_once"]);
    const [diff] = toolCall.content;
    equal([diff.type, diff.path, toolCall.locations[0].path, toolCall.kind], ["diff", poem, poem, "edit"]);
    const calls = me.calls.map(({ name, kind, status }) => `${name} (${kind}) ${status}`);
    equal(calls, ["read (read) completed", "edit (edit) completed"]);
  });
  await step("a command: terminal/*", async () => {
    await me.say("Run the count");
    const [{ name, status, rawOutput, content }] = me.calls;
    equal([name, status, rawOutput.exit_code, content[0].type], ["bash", "failed", 3, "terminal"]);
    return rawOutput.stdout.trim().split(/\s+/).join(" ");
  });
  await step("a call that is not allowed", async () => {
    me.decision = "reject_once";
    await me.say("Do the forbidden");
    equal(me.calls[0].status, "failed");
    me.decision = "allow_always";
  });
  await step("a call that is allowed for good is not asked about again", async () => {
    await me.say("Do it always");
    equal([me.permissions.length, ...me.calls.map(({ status }) => status)], [1, "completed", "completed"]);
    me.decision = "allow_once";
  });
  await step("plan", async () => {
    await me.say("Make a plan");
    const plans = me.news.filter(({ sessionUpdate }) => sessionUpdate === "plan");
    const told = plans.map(({ entries }) => entries.map(({ status }) => status).join(", "));
    equal(told, ["in_progress, pending", "completed, completed"]);
  });
  await step("stop reasons", async () => {
    const { session } = me;
    const reasons = { babble: "max_tokens", unseemly: "refusal", rounds: "max_turn_requests" };
    for (const [word, reason] of Object.entries(reasons)) {
      const { sessionId } = await me.open({ cwd: me.home.work, mcpServers: [] });
      equal((await me.say(word)).stopReason, reason);
      await me.ask("session/delete", { sessionId });
    }
    me.session = session;
    return Object.values(reasons).join(", ");
  });
  await step("a slash command", async () => {
    await me.say("/status");
    check(me.said("agent_message_chunk").includes("Model"), "no model in the status");
  });
}

/** What the agent asks the user beside permissions. */
export async function questions(me) {
  await step("elicitation/create with a form, accepted and declined", async () => {
    me.answer = { action: "accept", content: { q1: "blue" } };
    await me.say("Ask me a question");
    const [{ mode, requestedSchema, sessionId }] = me.elicitations;
    equal([mode, sessionId, requestedSchema.properties.q1.oneOf.length], ["form", me.session, 2]);
    check(JSON.stringify(me.calls[0].rawOutput).includes("blue"), "the answer did not arrive");
    me.answer = { action: "decline" };
    await me.say("Ask me a question");
    equal(me.calls[0].status, "completed");
  });
  await step("elicitation/create with a page, elicitation/complete", async () => {
    me.answer = { action: "accept" };
    await me.say("Please sign in");
    const [{ mode, url, elicitationId }] = me.elicitations;
    equal([mode, url, me.completed], ["url", "https://login.example/start", [elicitationId]]);
    equal(me.calls[0].status, "completed");
  });
}

/** Turns that are ended before their time. */
export async function cancelling(me) {
  await step("session/cancel, and a second prompt meanwhile", async () => {
    const turn = me.say("Go on, endless");
    await me.update("agent_message_chunk");
    await refused(me.prompt({ type: "text", text: "too early" }), INVALID_REQUEST);
    await me.cancel();
    equal((await turn).stopReason, "cancelled");
  });
  await step("session/cancel while a question stands: $/cancel_request from the agent", async () => {
    me.answer = "never";
    const turn = me.say("Ask me a question");
    await me.asked();
    await me.cancel();
    equal((await turn).stopReason, "cancelled");
    await me.withdrawn();
    await me.say("and?"); // the script takes a prompt behind results of tools for a part of the turn before
  });
  await step("$/cancel_request from an AbortSignal", async () => {
    const abort = new AbortController();
    const turn = me.say("Go on, endless", { cancellationSignal: abort.signal });
    await me.update("agent_message_chunk");
    abort.abort();
    equal(await turn.then(({ stopReason }) => stopReason, ({ code }) => code), "cancelled");
    equal((await me.say("once again")).stopReason, "end_turn");
  });
}
