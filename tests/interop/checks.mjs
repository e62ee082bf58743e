// The steps of a tour, and what is to hold in them.
export const AUTH_REQUIRED = -32000;
export const NOT_FOUND = -32002;
export const INVALID_REQUEST = -32600;
export const NO_METHOD = -32601;
export const INVALID_PARAMS = -32602;

let steps = 0;

export const taken = () => steps;

/** One step of the tour: a line when it went as it should, else an error that says what did not. */
export async function step(title, body) {
  const said = await body().catch((error) => {
    throw new Error(`${title}: ${error.message}${error.code ? ` (${error.code})` : ""}`, { cause: error });
  });
  console.log(`ok ${String((steps += 1)).padStart(2)} ${title}${said ? `: ${said}` : ""}`);
}

export function check(holds, otherwise) {
  if (!holds) throw new Error(otherwise);
}

export function equal(found, wanted, what = "") {
  const [one, other] = [JSON.stringify(found), JSON.stringify(wanted)];
  const at = Math.max([...one].findIndex((letter, index) => letter !== other[index]) - 40, 0);
  check(one === other, `${what} ${one.slice(at, at + 200)}, not ${other.slice(at, at + 200)}`);
}

export async function refused(promise, code) {
  const answer = await promise.catch((error) => error);
  check(answer instanceof Error, `answered ${JSON.stringify(answer)}, not refused with ${code}`);
  equal(answer.code, code, answer.message);
}
