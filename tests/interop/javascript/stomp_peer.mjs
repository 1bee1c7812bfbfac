// @stomp/stompjs goes through a server: PORT VERSION PASSCODE. What has happened is one line of JSON each.
import { Client, Versions } from '@stomp/stompjs';
import { WebSocket } from 'ws';

const [port, version, passcode] = process.argv.slice(2);
const tell = (what, value) => console.log(JSON.stringify({ [what]: value }));

function connect() {
  return new Promise((resolve, reject) => {
    const client = new Client({
      webSocketFactory: () => new WebSocket(`ws://127.0.0.1:${port}/`, [`v${version.replace('.', '')}.stomp`]),
      stompVersions: new Versions([version]),
      connectHeaders: { login: 'javascript', passcode },
      heartbeatIncoming: 1000,
      heartbeatOutgoing: 1000,
      reconnectDelay: 100,
      onConnect: () => resolve(client),
      onStompError: (frame) => { console.error(frame.headers.message); reject(new Error(frame.headers.message)); },
    });
    client.activate();
  });
}

/** The messages of a subscription: `next()` waits for one. */
function subscribe(client, destination, headers = {}) {
  const come = [];
  const waiting = [];
  const subscription = client.subscribe(destination, (message) => {
    const waits = waiting.shift();
    if (waits) waits(message);
    else come.push(message);
  }, headers);
  return { subscription, next: () => (come.length ? come.shift() : new Promise((resolve) => waiting.push(resolve))) };
}

let receipts = 0;
function send(client, destination, body, headers = {}) {
  return new Promise((resolve) => {
    const receipt = `sent-${(receipts += 1)}`;
    client.watchForReceipt(receipt, resolve);
    client.publish({ destination, body, headers: { ...headers, receipt } });
  });
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

let client = await connect();
tell('version', client.connectedVersion);

// This client escapes headers in 1.2 alone.
const hard = version === '1.2' ? 'a:b\nc\\d Größe' : 'Größe';
const special = subscribe(client, '/queue/js-special');
await send(client, '/queue/js-special', 'Größe 🐘', { name: hard });
const message = await special.next();
tell('special', `${message.headers.name}|${message.body}`);

for (const mode of ['client', 'client-individual']) {
  const destination = `/queue/js-${mode}`;
  for (const n of [1, 2, 3]) await send(client, destination, `order ${n}`);
  const { subscription, next } = subscribe(client, destination, { ack: mode, 'prefetch-count': '3' });
  const [first, second] = [await next(), await next()];
  await next();
  first.nack();
  const again = await next();
  tell(mode, `${again.body} ${again.headers.redelivered}`);
  second.ack();
  again.ack();
  subscription.unsubscribe();
}

const topic = subscribe(client, '/topic/js/#');
await send(client, '/topic/js/created', 'event');
const event = await topic.next();
tell('auto', `${event.headers.destination} ${event.body}`);

for (const end of ['abort', 'commit']) {
  const transaction = client.begin();
  client.publish({ destination: '/queue/js-transaction', body: end, headers: { transaction: transaction.id } });
  transaction[end]();
}
tell('transaction', (await subscribe(client, '/queue/js-transaction').next()).body);

await sleep(2500);
await send(client, '/queue/js-beat', 'alive');
tell('beat', client.connected);

await send(client, '/queue/js-again', 'again');
const options = { ack: 'client-individual' };
await subscribe(client, '/queue/js-again', options).next();
client.forceDisconnect();
await new Promise((resolve) => { client.onConnect = resolve; });
const again = await subscribe(client, '/queue/js-again', options).next();
tell('reconnect', `${again.body} ${again.headers.redelivered}`);
again.ack();
await client.deactivate();
process.exit(0);
