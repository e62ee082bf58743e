// fs/read_text_file and fs/write_text_file of ACP, through the documents of VS Code: unsaved changes count.

import * as acp from "@agentclientprotocol/sdk";
import * as vscode from "vscode";
import { lines, smallestChange } from "./text.js";

/** Return the text of a file: that of its document if it is open, else that on disk. */
export async function readTextFile(params: acp.ReadTextFileRequest): Promise<acp.ReadTextFileResponse> {
  const uri = vscode.Uri.file(params.path);
  const text = openDocument(uri)?.getText() ?? (await readDisk(uri));
  return { content: lines(text, params.line, params.limit) };
}

/** Replace the text of a file and save it. A missing file is made, with its folders. */
export async function writeTextFile(params: acp.WriteTextFileRequest): Promise<acp.WriteTextFileResponse> {
  const uri = vscode.Uri.file(params.path);
  const document = openDocument(uri);
  if (document === undefined) {
    await writeDisk(uri, params.content);
    return {};
  }
  await edit(document, params.content);
  const asWritten = document.getText() === params.content;
  if (!(await document.save()) && document.isDirty) throw failure(`${params.path} could not be saved`);
  // A document has one kind of line ends. Only a write to the disk keeps a text with both.
  if (!asWritten) await writeDisk(uri, params.content);
  return {};
}

async function edit(document: vscode.TextDocument, content: string): Promise<void> {
  const change = smallestChange(document.getText(), content);
  const range = new vscode.Range(document.positionAt(change.start), document.positionAt(change.end));
  const edits: vscode.TextEdit[] = [vscode.TextEdit.replace(range, change.text)];
  const eol = content.includes("\r\n") ? vscode.EndOfLine.CRLF : vscode.EndOfLine.LF;
  if (eol !== document.eol && content.includes("\n")) edits.push(vscode.TextEdit.setEndOfLine(eol));
  const all = new vscode.WorkspaceEdit();
  all.set(document.uri, edits);
  if (!(await vscode.workspace.applyEdit(all))) throw failure("VS Code refused the edit");
}

function openDocument(uri: vscode.Uri): vscode.TextDocument | undefined {
  return vscode.workspace.textDocuments.find((each) => !each.isClosed && each.uri.toString() === uri.toString());
}

async function readDisk(uri: vscode.Uri): Promise<string> {
  let bytes: Uint8Array;
  try {
    bytes = await vscode.workspace.fs.readFile(uri);
  } catch (error) {
    if (error instanceof vscode.FileSystemError && error.code === "FileNotFound") {
      throw acp.RequestError.resourceNotFound(uri.fsPath);
    }
    throw failure(error instanceof Error ? error.message : String(error));
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw failure(`${uri.fsPath} is not UTF-8`); // the agent reads its bytes itself
  }
}

async function writeDisk(uri: vscode.Uri, content: string): Promise<void> {
  try {
    await vscode.workspace.fs.writeFile(uri, Buffer.from(content, "utf8"));
  } catch (error) {
    throw failure(error instanceof Error ? error.message : String(error));
  }
}

function failure(message: string): acp.RequestError {
  return new acp.RequestError(-32603, message);
}
