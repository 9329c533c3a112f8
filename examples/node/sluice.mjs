// What every client of Sluice needs: the connection, the subjects, a process's id, and its log.
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { connect } from "@nats-io/transport-node";
import { jetstreamManager } from "@nats-io/jetstream";

const cell = process.env.SLUICE_CELL || "local";
const tenant = process.env.SLUICE_TENANT || "default";

/** Builds the subject sluice.v1.<cell>.<tenant>.<plane>.… */
export const subject = (...tokens) => ["sluice.v1", cell, tenant, ...tokens].join(".");

/** Connects to SLUICE_NATS_URL with SLUICE_NATS_TOKEN, or to the `sluice up` of this machine's data folder. */
export async function open() {
  let servers = process.env.SLUICE_NATS_URL;
  let token = process.env.SLUICE_NATS_TOKEN;
  if (!servers) {
    const data = process.env.SLUICE_DATA || join(process.env.XDG_DATA_HOME || join(homedir(), ".local/share"), "sluice");
    if (!existsSync(join(data, "server.json"))) throw new Error(`no Sluice server runs in ${data}: start \`sluice up\`, or set SLUICE_NATS_URL`);
    servers = JSON.parse(readFileSync(join(data, "server.json"), "utf8")).url;
    token ||= readFileSync(join(data, "token"), "utf8").trim();
  }
  return connect({ servers, token, name: "sluice node example" });
}

/** The id of the process that a command with this key starts. It is known before the process runs, so its log can be followed at once. */
export function processId(thread, key, ofTenant = tenant) {
  const digest = createHash("sha256").update(`${ofTenant}\0${thread}\0${key}\0`).digest();
  const bits = [...digest].map((byte) => byte.toString(2).padStart(8, "0")).join("");
  const alphabet = "0123456789abcdefghjkmnpqrstvwxyz";
  let id = "p";
  for (let i = 0; i < 125; i += 5) id += alphabet[parseInt(bits.slice(i, i + 5), 2)];
  return id;
}

/** Yields the stored chunks of a process from a sequence of LOG on: {seq, stream, offset, data}. */
export async function* readLog(nc, thread, proc, from = 1, upTo = Infinity) {
  const { direct } = await jetstreamManager(nc, { checkAPI: false });
  let seq = from;
  try {
    while (seq <= upTo) {
      const batch = await direct.getBatch(`sluice-${cell}-LOG`, { seq, batch: 64, next_by_subj: subject("log", thread, proc, "*") });
      for await (const m of batch) {
        seq = m.seq + 1;
        if (m.seq <= upTo) yield chunk(m.seq, m.subject, m.header, m.data);
      }
    }
  } catch (err) {
    if (err.code !== 404) throw err; // 404: no more messages
  }
}

/** Reads a live copy of a chunk: headers of the republished message name the stored one. */
export const liveChunk = (m) => chunk(Number(m.headers.get("Nats-Sequence")), m.headers.get("Nats-Subject"), m.headers, m.data);

function chunk(seq, from, headers, data) {
  return { seq, stream: from.split(".").pop(), offset: Number(headers.get("Sluice-Offset")), data };
}

/** Prints chunks in order, each byte once. It skips a chunk that arrives early: the chunk is in LOG, and is read from there. */
export function printer() {
  const printed = { stdout: 0, stderr: 0 };
  return ({ stream, offset, data }) => {
    if (offset !== printed[stream]) return;
    printed[stream] += data.length;
    process[stream].write(data);
  };
}
