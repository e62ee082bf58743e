// elicitation/create of ACP with the native inputs of VS Code: a form field by field, and pages to open.

import * as acp from "@agentclientprotocol/sdk";
import * as vscode from "vscode";

type Value = string | number | boolean | string[];
const CANCEL: acp.CreateElicitationResponse = { action: "cancel" };
/** What a field gives: a value, nothing for one that was left out, or the end of the form. */
type Given = { value: Value } | "empty" | "cancel";

interface Option {
  value: string;
  label: string;
  description?: string;
}

export async function elicit(
  request: acp.CreateElicitationRequest,
  withdrawn: AbortSignal,
): Promise<acp.CreateElicitationResponse> {
  const source = new vscode.CancellationTokenSource();
  const stop = () => {
    source.cancel();
  };
  withdrawn.addEventListener("abort", stop);
  try {
    if (acp.CreateElicitationRequest.isForm(request)) {
      return await fillIn(request.message, request.requestedSchema, source.token);
    }
    if (acp.CreateElicitationRequest.isUrl(request)) return await visit(request.message, request.url);
    return CANCEL;
  } finally {
    withdrawn.removeEventListener("abort", stop);
    source.dispose();
  }
}

async function visit(message: string, url: string): Promise<acp.CreateElicitationResponse> {
  // A page of this machine needs no https: programs that log in have such ones.
  if (!/^(https:\/\/|http:\/\/(localhost|127\.0\.0\.1|\[::1\])[:/])/.test(url)) return CANCEL;
  const open = "Open in Browser";
  const detail = message.includes(url) ? {} : { detail: url };
  const answer = await vscode.window.showInformationMessage(message, { modal: true, ...detail }, open, "Decline");
  if (answer === "Decline") return { action: "decline" };
  if (answer !== open) return CANCEL;
  return (await vscode.env.openExternal(vscode.Uri.parse(url))) ? { action: "accept" } : CANCEL;
}

async function fillIn(
  message: string,
  schema: acp.ElicitationSchema,
  token: vscode.CancellationToken,
): Promise<acp.CreateElicitationResponse> {
  const fields = Object.entries(schema.properties ?? {});
  if (fields.length === 0) {
    const answer = await vscode.window.showInformationMessage(message, { modal: true }, "OK", "Decline");
    return answer === "OK" ? { action: "accept", content: {} } : answer === undefined ? CANCEL : { action: "decline" };
  }
  const content: Record<string, Value> = {};
  for (const [index, [name, field]] of fields.entries()) {
    const step = fields.length === 1 ? "" : ` (${index + 1} of ${fields.length})`;
    const head = { title: `${firstLine(message)}${step}`, ignoreFocusOut: true };
    const required = schema.required?.includes(name) ?? false;
    const given = await ask(head, name, field as Field, required, token);
    if (given === "cancel" || token.isCancellationRequested) return CANCEL;
    if (given !== "empty") content[name] = given.value;
  }
  return { action: "accept", content };
}

/** The members of all kinds of fields. */
interface Field {
  type: string;
  title?: string | null;
  description?: string | null;
  default?: Value | null;
  enum?: string[] | null;
  oneOf?: acp.EnumOption[] | null;
  items?: { enum?: string[]; anyOf?: acp.EnumOption[] };
  minimum?: number | null;
  maximum?: number | null;
  minLength?: number | null;
  maxLength?: number | null;
  minItems?: number | null;
  maxItems?: number | null;
}

interface Head {
  title: string;
  ignoreFocusOut: boolean;
}

async function ask(
  head: Head,
  name: string,
  field: Field,
  required: boolean,
  token: vscode.CancellationToken,
): Promise<Given> {
  const placeHolder = [field.title ?? name, field.description].filter(Boolean).join(": ");
  if (field.type === "boolean") {
    const yes = { label: "Yes", value: true };
    const no = { label: "No", value: false };
    const items = field.default === false ? [no, yes] : [yes, no];
    const picked = await vscode.window.showQuickPick(items, { ...head, placeHolder }, token);
    return picked === undefined ? "cancel" : { value: picked.value };
  }
  if (field.type === "array") {
    const items = options(field.items?.enum, field.items?.anyOf).map((each) => ({
      ...each,
      picked: Array.isArray(field.default) && field.default.includes(each.value),
    }));
    const picked = await vscode.window.showQuickPick(items, { ...head, placeHolder, canPickMany: true }, token);
    return picked === undefined ? "cancel" : { value: picked.map((each) => each.value) };
  }
  const choices = options(field.enum, field.oneOf);
  if (choices.length > 0) {
    const items = required ? choices : [...choices, { label: "No answer", value: undefined }];
    const picked = await vscode.window.showQuickPick(items, { ...head, placeHolder }, token);
    if (picked === undefined) return "cancel";
    return picked.value === undefined ? "empty" : { value: picked.value };
  }
  return text(head, placeHolder, field, required, token);
}

async function text(
  head: Head,
  prompt: string,
  field: Field,
  required: boolean,
  token: vscode.CancellationToken,
): Promise<Given> {
  const isNumber = field.type === "number" || field.type === "integer";
  const value = typeof field.default === "string" || typeof field.default === "number" ? String(field.default) : "";
  const given = await vscode.window.showInputBox(
    {
      ...head,
      prompt: required || /empty|optional/i.test(prompt) ? prompt : `${prompt} (may stay empty)`,
      value,
      validateInput: (typed) => problem(field, typed, required),
    },
    token,
  );
  if (given === undefined) return "cancel";
  if (given === "") return required && !isNumber ? { value: "" } : "empty";
  return { value: isNumber ? Number(given) : given };
}

/** Return what is wrong with a text, for the user. */
export function problem(field: Field, typed: string, required: boolean): string | undefined {
  if (typed === "") return required && (field.minLength ?? 1) > 0 ? "This is needed." : undefined;
  if (field.type === "number" || field.type === "integer") {
    const number = Number(typed);
    if (!Number.isFinite(number) || (field.type === "integer" && !Number.isInteger(number))) {
      return field.type === "integer" ? "A whole number is needed." : "A number is needed.";
    }
    if (field.minimum != null && number < field.minimum) return `At least ${field.minimum} is needed.`;
    if (field.maximum != null && number > field.maximum) return `At most ${field.maximum} is possible.`;
    return undefined;
  }
  if (field.minLength != null && typed.length < field.minLength) return `At least ${field.minLength} characters.`;
  if (field.maxLength != null && typed.length > field.maxLength) return `At most ${field.maxLength} characters.`;
  return undefined;
}

function options(plain: string[] | null | undefined, titled: acp.EnumOption[] | null | undefined): Option[] {
  if (titled != null) {
    return titled.map((each) => ({
      value: each.const,
      label: each.title,
      ...(each.description == null ? {} : { description: each.description }),
    }));
  }
  return (plain ?? []).map((value) => ({ value, label: value }));
}

function firstLine(message: string): string {
  return message.split("\n")[0] ?? message;
}
