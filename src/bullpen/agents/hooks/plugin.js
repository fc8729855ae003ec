// Tells bullpen what the sessions of opencode do, each time that changes, by its hook shim.
// It waits for nothing and changes nothing. `bullpen hooks uninstall opencode` removes it.
import { spawn, spawnSync } from "node:child_process"

const COMMAND = []
const LIMIT = 100 // of what waits to be told; the oldest goes first

export const Bullpen = async ({ directory }) => {
  const known = new Map() // what was told last of a session, so that it is not told again
  const waiting = []
  let isTelling = false

  const command = (name) => [...COMMAND.slice(1), name, String(process.pid)]

  // One after the other, so that they are heard in this order.
  const next = () => {
    if (isTelling || waiting.length === 0) return
    isTelling = true
    const [name, line] = waiting.shift()
    const done = () => {
      isTelling = false
      next()
    }
    const shim = spawn(COMMAND[0], command(name), { stdio: ["pipe", "ignore", "ignore"] })
    shim.once("error", done)
    shim.once("close", done)
    shim.stdin.on("error", () => {})
    shim.stdin.end(line)
  }

  const lineOf = (name, said) =>
    JSON.stringify({ hook_event_name: name, timestamp: Date.now(), cwd: directory, ...said })

  const tell = (name, said) => {
    if (waiting.length >= LIMIT) waiting.shift()
    waiting.push([name, lineOf(name, said)])
    next()
  }

  const isNew = (key, value) => {
    if (known.get(key) === value) return false
    if (known.size > 1000) known.clear()
    known.set(key, value)
    return true
  }

  const hear = (name, said) => {
    const session_id = said.sessionID ?? said.info?.id
    if (!session_id) return
    switch (name) {
      case "session.created":
      case "session.updated": {
        const { title, parentID: parent_id, version } = said.info ?? {}
        if (isNew(`title ${session_id}`, title)) tell(name, { session_id, parent_id, title, version })
        break
      }
      case "session.status": {
        const { type: status, attempt, message } = said.status ?? {}
        if (isNew(`status ${session_id}`, `${status} ${attempt ?? ""}`))
          tell(name, { session_id, status, attempt, message })
        break
      }
      case "session.error": {
        const { name: error, data } = said.error ?? {}
        const { message, statusCode: status_code } = data ?? {}
        tell(name, { session_id, error, status_code, message })
        break
      }
      case "permission.asked":
        tell(name, { session_id, request_id: said.id, tool: said.permission, what: said.patterns?.[0] })
        break
      case "question.asked":
        tell(name, { session_id, request_id: said.id, what: said.questions?.[0]?.question })
        break
      case "permission.replied":
      case "question.replied":
      case "question.rejected":
        tell(name, { session_id, request_id: said.requestID, reply: said.reply })
        break
    }
  }

  return {
    event: async ({ event }) => {
      try {
        hear(event.type, event.properties ?? {})
      } catch {
        // never to the agent's disadvantage
      }
    },
    dispose: async () => {
      try {
        const input = lineOf("disposed", { session_id: "*" })
        spawnSync(COMMAND[0], command("disposed"), { input, timeout: 1000, stdio: ["pipe", "ignore", "ignore"] })
      } catch {
        // it ends anyway
      }
    },
  }
}
