// Pictures as blocks of ACP and as `data:` addresses.

import type { ContentBlock } from "@agentclientprotocol/sdk";

const ADDRESS = /^data:(image\/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/]+=*)$/;

/** Return the block of a picture that is given as a `data:` address, or undefined if it is no such picture. */
export function imageBlock(picture: string): (ContentBlock & { type: "image" }) | undefined {
  const [, mimeType, data] = ADDRESS.exec(picture) ?? [];
  return mimeType === undefined || data === undefined ? undefined : { type: "image", mimeType, data };
}

/** Return the address of a block's picture, or undefined if it is of a kind that is not shown. */
export function imageAddress(block: ContentBlock): string | undefined {
  if (block.type !== "image" || !/^image\/(png|jpeg|gif|webp)$/.test(block.mimeType)) return undefined;
  return `data:${block.mimeType};base64,${block.data}`;
}
