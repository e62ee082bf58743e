// The environment of programs that this extension starts: without what VS Code sets for its own processes.

const OWN = /^(ELECTRON_|VSCODE_|APPLICATION_INSIGHTS_|CHROME_DESKTOP$|NODE_OPTIONS$)/;

export function cleanEnvironment(environ: NodeJS.ProcessEnv, added: Record<string, string> = {}): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, value] of Object.entries(environ)) {
    if (value !== undefined && !OWN.test(name)) kept[name] = value;
  }
  return { ...kept, ...added };
}
