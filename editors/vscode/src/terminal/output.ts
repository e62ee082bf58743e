// What a command has printed, up to a limit of bytes, as terminal/output of ACP asks for it.

/** Keeps the end of an output. `limit` counts bytes of UTF-8; the cut falls between characters. */
export class OutputBuffer {
  private pieces: Buffer[] = [];
  private size = 0;
  private dropped = false;

  constructor(private readonly limit: number) {}

  append(text: string): void {
    const piece = Buffer.from(text, "utf8");
    this.pieces.push(piece);
    this.size += piece.length;
    // Cutting at twice the limit instead of at each piece keeps long outputs cheap.
    if (this.size > 2 * this.limit + 65_536) this.cut();
  }

  get text(): string {
    this.cut();
    return Buffer.concat(this.pieces).toString("utf8");
  }

  /** Return about the last `size` bytes, without reading the rest. */
  end(size: number): string {
    const last: Buffer[] = [];
    let found = 0;
    for (let index = this.pieces.length - 1; index >= 0 && found < size; index -= 1) {
      const piece = this.pieces[index] ?? Buffer.alloc(0);
      last.unshift(piece);
      found += piece.length;
    }
    return Buffer.from(Buffer.concat(last).subarray(-size)).toString("utf8").replace(/^\ufffd+/, "");
  }

  get truncated(): boolean {
    return this.dropped || this.size > this.limit;
  }

  private cut(): void {
    if (this.size <= this.limit) return;
    const whole = Buffer.concat(this.pieces);
    let start = whole.length - this.limit;
    while (start < whole.length && ((whole[start] ?? 0) & 0xc0) === 0x80) start += 1;
    const kept = Buffer.from(whole.subarray(start));
    this.pieces = [kept];
    this.size = kept.length;
    this.dropped = true;
  }
}
