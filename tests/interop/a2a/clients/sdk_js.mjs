// What the official JavaScript client of A2A sees of agents of ours: one line of JSON a step.
import { createRequire } from "node:module";
import { randomUUID } from "node:crypto";

const [modules, dummy, patient, kit, hook] = process.argv.slice(2);
const sdk = createRequire(`${modules}/.`)("@a2a-js/sdk/client");
const SECONDS = 100; // a hang, on however busy a machine
const STATES = ["unspecified", "submitted", "working", "completed", "failed", "canceled", "input_required"];

const tell = (step, binding, facts) => console.log(JSON.stringify({ step, binding, ...facts }));
const state = (each) => STATES[each.status.state] ?? each.status.state;
const words = (artifacts) =>
  (artifacts ?? []).flatMap((each) => each.parts).map((part) => part.content.value).join("");
const told = (task) => ({ id: task.id, state: state(task), text: words(task.artifacts) });

function message(text, { messageId = "", taskId = "" } = {}) {
  return {
    messageId: `${messageId}${randomUUID()}`,
    role: 1, // the user
    parts: [{ content: { $case: "text", value: text }, metadata: undefined, filename: "", mediaType: "" }],
    taskId,
    contextId: "",
    extensions: [],
    referenceTaskIds: [],
    metadata: undefined,
  };
}

const request = (sent, returnImmediately = false) => ({
  tenant: "",
  message: sent,
  configuration: { acceptedOutputModes: [], returnImmediately, taskPushNotificationConfig: undefined },
  metadata: undefined,
});

async function read(events, seen = { id: "", states: [], chunks: [] }, onWorking = () => {}) {
  for await (const { payload } of events) {
    if (payload.$case === "task") {
      seen.id = payload.value.id;
      seen.chunks.push(...payload.value.artifacts.map((each) => words([each])));
    }
    if (payload.$case === "artifactUpdate") seen.chunks.push(words([payload.value.artifact]));
    else seen.states.push(state(payload.value));
    if (seen.states.includes("working")) onWorking();
  }
  return seen;
}

async function talk(client, kits, binding) {
  const card = await client.getAgentCard();
  tell("card", binding, { name: card.name, streams: card.capabilities.streaming });
  const done = await client.sendMessage(request(message(`hello ${binding}`)));
  tell("sent", binding, told(done));
  tell("got", binding, told(await client.getTask({ tenant: "", id: done.id })));
  const listed = await client.listTasks({ tenant: "", contextId: "", status: 0, pageToken: "", pageSize: 100 });
  tell("listed", binding, { has_it: listed.tasks.some((each) => each.id === done.id) });
  tell("streamed", binding, await read(client.sendMessageStream(request(message("stream")))));
  const chunked = message("go", { messageId: "tck-stream-artifact-chunked-" });
  tell("chunked", binding, await read(kits.sendMessageStream(request(chunked))));
  const asked = await kits.sendMessage(request(message("begin", { messageId: "tck-input-required-" })));
  tell("asked", binding, told(asked));
  const replied = await kits.sendMessage(request(message("go on", { taskId: asked.id })));
  tell("replied", binding, told(replied));
}

async function follow(client, binding, url) {
  const task = await client.sendMessage(request(message("wait"), true));
  const config = { tenant: "", taskId: task.id, id: "hook", url, token: `of ${binding}`, authentication: undefined };
  await client.createTaskPushNotificationConfig(config);
  const found = await client.getTaskPushNotificationConfig({ tenant: "", taskId: task.id, id: "hook" });
  tell("hooked", binding, { url: found.url, token: found.token });
  const ofTask = { tenant: "", taskId: task.id, pageSize: 10, pageToken: "" };
  const listed = await client.listTaskPushNotificationConfig(ofTask);
  tell("hooks", binding, { urls: listed.configs.map((each) => each.url) });
  const seen = { id: "", states: [], chunks: [] };
  const working = Promise.withResolvers?.() ?? resolvers();
  const reading = read(client.resubscribeTask({ tenant: "", id: task.id }), seen, working.resolve);
  await working.promise;
  tell("canceled", binding, told(await client.cancelTask({ tenant: "", id: task.id, metadata: undefined })));
  tell("followed", binding, await reading);
  await client.createTaskPushNotificationConfig({ ...config, id: "spare", url: `${url}&spare` });
  await client.deleteTaskPushNotificationConfig({ tenant: "", taskId: task.id, id: "spare" });
  const left = await client.listTaskPushNotificationConfig(ofTask);
  tell("unhooked", binding, { has_it: left.configs.some((each) => each.id === "spare") });
}

function resolvers() {
  const made = {};
  made.promise = new Promise((resolve) => (made.resolve = resolve));
  return made;
}

setTimeout(() => process.exit(1), SECONDS * 1000).unref();
for (const binding of ["JSONRPC", "HTTP+JSON"]) {
  const options = sdk.ClientFactoryOptions.createFrom(sdk.ClientFactoryOptions.default, {
    preferredTransports: [binding],
  });
  const factory = new sdk.ClientFactory(options);
  await talk(await factory.createFromUrl(dummy), await factory.createFromUrl(kit), binding);
  await follow(await factory.createFromUrl(patient), binding, `${hook}?${binding}`);
}
