// Runs a command in a thread's sandbox: node exec.mjs [--thread T] [--key K] [--provider P] -- COMMAND [ARG…]
// It prints the command's output and exits with its exit code. With --message PROMPT and no command, the agent of the thread's
// --template answers: a message is a command with another op.
import { randomUUID } from "node:crypto";
import { parseArgs } from "node:util";
import { createInbox, headers, NoRespondersError } from "@nats-io/transport-node";
import { jetstream } from "@nats-io/jetstream";
import { liveChunk, open, printer, processId, readLog, subject } from "./sluice.mjs";

const { values, positionals } = parseArgs({
  options: {
    thread: { type: "string", default: "node" }, key: { type: "string" }, provider: { type: "string" },
    template: { type: "string" }, message: { type: "string" },
  },
  allowPositionals: true,
});
const { thread, provider, template, message: prompt, key = randomUUID() } = values;
const [command, ...args] = positionals;
const what = prompt === undefined ? { op: "exec", exec: { command, args } } : { op: "message", message: { prompt } };
const body = JSON.stringify({ specversion: "1", thread, key, provider, template, ...what });

const nc = await open();
const proc = processId(thread, key);

// Subscribe before sending, to miss nothing. The inbox receives answers, and refusals, which are not recorded. The
// feed receives the records of every worker: if this one dies, those of the next.
const inbox = createInbox();
const events = queue();
nc.subscribe(inbox, { callback: (_, m) => events.push(m) });
nc.subscribe(subject("feed", thread, proc, "process", "*"), { callback: (_, m) => events.push(m) });
const print = printer();
const tail = nc.subscribe(subject("tail", thread, proc, "*"), { callback: (_, m) => print(liveChunk(m)) });

let event = await send();
// A rejection with details.declined is a late answer to rpc: the command is queued by then.
const ended = (e) => ["process.exited", "process.lost", "process.rejected"].includes(e?.type) && !e.data.error?.details?.declined;
while (!ended(event)) {
  if (event?.type === "command.waiting") console.error(`sluice: ${event.data.message}`); // it is queued, and no worker can run it yet
  event = parse(await events.next());
}
const result = event.data;
tail.unsubscribe();

// All output is stored before the result is sent. Read from the store what did not arrive live.
if (result.log) for await (const c of readLog(nc, thread, proc, result.log.first_seq, result.log.last_seq)) print(c);
if (result.error) console.error(`sluice: ${result.error.message} (${result.error.code})`);
process.exitCode = result.exit_code;
await nc.close();

/** Sends the command to the worker that owns the thread; places the thread if it has no owner; otherwise queues it in CMD. */
async function send() {
  const h = headers();
  h.set("Sluice-Inbox", inbox); // JetStream uses a message's reply subject for its ack
  for (let tries = 0; tries < 3; tries++) {
    nc.publish(subject("rpc", thread, what.op), body, { reply: inbox, headers: h });
    const answer = await events.next(5000);
    if (!answer) break; // a frozen worker: the same key keeps the command from running twice
    if (answer.headers?.code !== 503) {
      const first = parse(answer);
      if (first.type === "process.rejected" && first.data.error?.code === "unavailable" && !first.data.fingerprint) break; // the worker is shutting down
      return first;
    }
    if (!(await place())) break;
  }
  await jetstream(nc).publish(subject("cmd", thread, what.op), body, { headers: h });
}

/** Requests a worker for the thread. Returns false if none takes it now. */
async function place() {
  try {
    const reply = (await nc.request(subject("api", "place"), JSON.stringify({ thread, provider, template }), { timeout: 10_000 })).json();
    if (reply.error?.details?.declined) return false; // another worker may take it
    if (reply.error) throw new Error(`${reply.error.message} (${reply.error.code})`);
    return true;
  } catch (err) {
    if (err instanceof NoRespondersError || err.cause instanceof NoRespondersError) return false;
    throw err;
  }
}

function parse(m) {
  return m.data.length > 0 ? m.json() : undefined; // an empty message means that there was no responder
}

/** A queue of messages: next waits for one message, at most the given milliseconds. */
function queue() {
  const waiting = [];
  let wake = () => {};
  return {
    push: (m) => (waiting.push(m), wake()),
    async next(ms) {
      if (waiting.length === 0) {
        let timer;
        await new Promise((resolve) => {
          wake = resolve;
          if (ms) timer = setTimeout(resolve, ms);
        });
        clearTimeout(timer);
      }
      return waiting.shift();
    },
  };
}
