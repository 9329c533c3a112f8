// Runs a command in a thread's sandbox: node exec.mjs [--thread T] [--key K] [--provider P] -- COMMAND [ARG…]
// Its output streams through, and its exit code is this program's. With --message PROMPT and no command, the agent of the thread's
// --template answers: a message is a command like any other.
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

// Subscribe first, send then: nothing can be missed. The inbox gets the answers, and refusals, which are no records. The
// feed gets the records, whoever writes them: should the worker die, its successor's.
const inbox = createInbox();
const events = queue();
nc.subscribe(inbox, { callback: (_, m) => events.push(m) });
nc.subscribe(subject("feed", thread, proc, "process", "*"), { callback: (_, m) => events.push(m) });
const print = printer();
const tail = nc.subscribe(subject("tail", thread, proc, "*"), { callback: (_, m) => print(liveChunk(m)) });

let event = await send();
while (!["process.exited", "process.lost", "process.rejected"].includes(event?.type)) event = parse(await events.next());
const result = event.data;
tail.unsubscribe();

// Durable output is complete before the result is sent. What did not come live is read from there.
if (result.log) for await (const c of readLog(nc, thread, proc, result.log.first_seq, result.log.last_seq)) print(c);
if (result.error) console.error(`sluice: ${result.error.message} (${result.error.code})`);
process.exitCode = result.exit_code;
await nc.close();

/** Sends the command by the fast path to the worker that owns the thread; has it placed if nobody does; else leaves it in CMD. */
async function send() {
  const h = headers();
  h.set("Sluice-Inbox", inbox); // JetStream takes a message's reply subject for its own ack
  for (let tries = 0; tries < 3; tries++) {
    nc.publish(subject("rpc", thread, what.op), body, { reply: inbox, headers: h });
    const answer = await events.next(5000);
    if (!answer) break; // a frozen worker: the same key keeps the command from running twice
    if (answer.headers?.code !== 503) {
      const first = parse(answer);
      if (first.type === "process.rejected" && first.data.error?.code === "unavailable") break; // it shuts down
      return first;
    }
    if (!(await place())) break;
  }
  await jetstream(nc).publish(subject("cmd", thread, what.op), body, { headers: h });
}

/** Asks for a worker to take the thread. False where there is none. */
async function place() {
  try {
    const reply = (await nc.request(subject("api", "place"), JSON.stringify({ thread, provider, template }), { timeout: 10_000 })).json();
    if (reply.error) throw new Error(`${reply.error.message} (${reply.error.code})`);
    return true;
  } catch (err) {
    if (err instanceof NoRespondersError || err.cause instanceof NoRespondersError) return false;
    throw err;
  }
}

function parse(m) {
  return m.data.length > 0 ? m.json() : undefined; // an empty one says that nobody listened
}

/** A queue of messages: next waits for one, or for so many milliseconds. */
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
