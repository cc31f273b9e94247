// A run, live.  Names, labels and reasons come from the network: they are only ever the text of a
// node, and nothing here makes markup of a string.

const FAILURES_LISTED = 50;
const RETRY_MS = 5000;
const ANSWER_LENGTH = 300;

const at = (id) => document.getElementById(id);
const hosts = new Map();
const facts = new Map();
const failures = new Map();

let shown = null; // the state that is shown
let received = 0; // when it came, on the clock of performance.now()
let lost = false; // the connection is
let serial = 0; // of sections, for links to them

// -- small things -----------------------------------------------------------------------------

function make(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

// What is the same is left alone: a reader's selection and a screen reader's place stay.
function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function mark(node, bad) {
  if (node.hasAttribute("data-bad") !== bad) node.toggleAttribute("data-bad", bad);
}

function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

function plural(number, noun, verb, verbs) {
  return `${count(number, noun)} ${number === 1 ? verb : verbs}`;
}

function pad(number) {
  return String(number).padStart(2, "0");
}

// A number stays on the line of its unit.
function span(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)}\u00a0s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60) % 60;
  if (whole < 3600) return `${minutes}\u00a0min ${pad(whole % 60)}\u00a0s`;
  return `${Math.floor(whole / 3600)}\u00a0h ${pad(minutes)}\u00a0min`;
}

function clock(seconds) {
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor((seconds % 3600) / 60);
  const rest = pad(seconds % 60);
  return hours ? `${hours}:${pad(minutes)}:${rest}` : `${minutes}:${rest}`;
}

// -- what a state means -----------------------------------------------------------------------

function isOpen(state) {
  return state.phase === "waiting" || state.phase === "staging";
}

function isFailed(rank) {
  return rank.state === "lost" || (rank.state === "exited" && rank.code !== 0);
}

function isBad(member) {
  return member.lost !== null || member.ranks.some(isFailed);
}

function exit(rank) {
  if (rank.code === null) return "–";
  const code = String(rank.code).replace("-", "−");
  return rank.signal === null ? code : `${rank.signal} (${code})`;
}

function word(rank) {
  return rank.state === "exited" && rank.code !== 0 ? "failed" : rank.state;
}

function gpusOf(member) {
  const kinds = new Map();
  for (const label of member.gpus) kinds.set(label, (kinds.get(label) ?? 0) + 1);
  return [...kinds].map(([label, number]) => `${number} × ${label}`).join(", ");
}

function because(state) {
  return state.reason === null ? "" : ` Reason: ${state.reason}.`;
}

function joined(state) {
  const target = state.target_ranks;
  const ranks = target === null ? count(state.joined_ranks, "rank") : `${state.joined_ranks} of ${count(target, "rank")}`;
  return `${ranks} joined on ${count(state.joined_hosts, "host")}`;
}

function world(state) {
  return `${count(state.world_size ?? state.joined_ranks, "rank")} on ${count(state.joined_hosts, "host")}`;
}

function failed(state) {
  return state.failed_ranks ? ` ${plural(state.failed_ranks, "rank", "has", "have")} failed or been lost.` : "";
}

function over(state) {
  if (state.outcome === "ok") return `The run is over: all went well with ${world(state)}.`;
  if (state.outcome === "window-failed") return `The run is over: no world formed.${because(state)}`;
  return `The run is over: it failed.${failed(state)}${because(state)}`;
}

// One sentence or two; a screen reader says them anew when they change, so they hold no countdown
// and no count that changes by the second.
function summary(state) {
  if (state.outcome !== null) return over(state);
  switch (state.phase) {
    case "waiting": {
      const missing = state.min_rank_start - state.joined_ranks;
      const quorum = missing > 0 ? `${count(missing, "rank")} to go until the quorum.` : "The quorum is met.";
      return `${joined(state)}. ${quorum}`;
    }
    case "staging":
      return `${joined(state)}. ${state.start_armed ? "The start has been given." : "The quorum is met, and the start can be given."}`;
    case "forming":
      return `The world is forming: ${world(state)}.`;
    case "failed":
      return `The run has failed and is being ended.${failed(state)}${because(state)}`;
    default:
      return `The world has formed: ${world(state)}.${failed(state)}`;
  }
}

function title(state) {
  const phase = state.outcome === null ? state.phase : `over: ${state.outcome}`;
  const ranks = isOpen(state)
    ? `${state.joined_ranks}/${state.target_ranks ?? state.min_rank_start} ranks`
    : `${state.exited_ranks}/${state.world_size ?? state.joined_ranks} ranks ended`;
  const bad = state.failed_ranks ? `, ${state.failed_ranks} failed` : "";
  return `${lost ? "(old) " : ""}${phase} – ${ranks}${bad} – joinproto`;
}

// -- overview ---------------------------------------------------------------------------------

function fact(name, text, bad = false) {
  let entry = facts.get(name);
  if (!entry) {
    const value = make("dd");
    entry = { value, row: make("div", "", make("dt", "", name), value) };
    facts.set(name, entry);
    at("facts").append(entry.row);
  }
  entry.row.hidden = text === null;
  if (text !== null) write(entry.value, text);
  mark(entry.row, bad);
}

function remaining(seconds, passed) {
  if (!isOpen(shown)) return null;
  if (seconds === null) return passed;
  const gone = (performance.now() - received) / 1000;
  return clock(Math.max(0, Math.ceil(seconds - gone)));
}

function tick() {
  if (shown === null) return;
  fact("Join window", remaining(shown.window_remaining_secs, "has passed"));
  fact("Given up in", remaining(shown.cap_remaining_secs, "has passed"));
}

function showFacts(state) {
  const all = state.members.flatMap((member) => member.ranks);
  const running = all.filter((rank) => rank.state === "running").length;
  const started = all.length && all[0].started_at_secs !== null ? all[0].started_at_secs : null;
  const formed = state.world_size !== null;
  fact("Hosts", String(state.joined_hosts));
  fact("Ranks", String(state.joined_ranks));
  fact("GPUs", String(state.members.reduce((sum, member) => sum + member.gpus.length, 0)));
  tick();
  fact("Formed after", started === null ? null : span(started));
  fact("Running", formed ? String(running) : null);
  fact("Exited", formed ? String(state.exited_ranks) : null);
  fact("Failed or lost", formed ? String(state.failed_ranks) : null, state.failed_ranks > 0);
  fact("Start", isOpen(state) ? (state.start_armed ? `${state.start_mode}, given` : state.start_mode) : null);
  fact("Turned away", state.turned_away ? String(state.turned_away) : null);
  fact("Not admitted yet", state.unadmitted ? String(state.unadmitted) : null);
}

function showWindow(state) {
  at("window").hidden = !isOpen(state);
  const quorum = state.min_rank_start;
  const target = state.target_ranks;
  const whole = Math.max(target ?? 0, quorum, state.joined_ranks, 1);
  const share = (100 * quorum) / whole;
  const same = quorum === target;
  at("joined-bar").style.width = `${(100 * state.joined_ranks) / whole}%`;
  at("quorum-mark").style.left = `${share}%`;
  // Shifted by as much of its own width, the label stays within the bar.
  at("quorum-label").style.left = `${share}%`;
  at("quorum-label").style.transform = `translateX(-${share}%)`;
  write(at("quorum-label"), same ? `quorum and target ${quorum}` : `quorum ${quorum}`);
  write(at("target-label"), target === null ? "no target" : `target ${target}`);
  at("target-label").hidden = same;
  const bar = at("bar");
  bar.setAttribute("aria-valuemax", whole);
  bar.setAttribute("aria-valuenow", state.joined_ranks);
  bar.setAttribute("aria-valuetext", `${joined(state)}; quorum ${quorum}`);
}

// -- hosts ------------------------------------------------------------------------------------

function makeHost() {
  const name = make("span", "name");
  const about = make("span", "about");
  const link = make("span", "link");
  const heads = ["Rank", "Device", "State", "Exit", "Ended"].map((text) => {
    const head = make("th", "", text);
    head.scope = "col";
    return head;
  });
  const body = make("tbody");
  const table = make(
    "table",
    "",
    make("caption", "", name, about, link),
    make("thead", "", make("tr", "", ...heads)),
    body,
  );
  const section = make("div", "host", table);
  section.id = `host-${++serial}`;
  return { section, name, about, link, body, rows: new Map(), last: "" };
}

function linkOf(member) {
  if (member.lost !== null) return `lost: ${member.lost}`;
  if (member.connected) return "";
  return member.left_at_secs === null ? "link ended" : `link ended after ${span(member.left_at_secs)}`;
}

function showHost(entry, member) {
  const said = JSON.stringify(member);
  if (entry.last === said) return;
  entry.last = said;
  const about = [`${member.peer}, wire ${member.wire}`, gpusOf(member), `joined after ${span(member.joined_at_secs)}`];
  if (member.libtorch) about.splice(1, 0, `libtorch ${member.libtorch}`);
  write(entry.name, member.host);
  write(entry.about, about.filter(Boolean).join(" · "));
  write(entry.link, linkOf(member));
  mark(entry.section, isBad(member));
  keyed(entry.body, entry.rows, member.ranks, (rank) => rank.rank, makeRow, showRow);
}

function makeRow() {
  const head = make("th");
  head.scope = "row";
  const cells = [head, make("td"), make("td"), make("td"), make("td")];
  return { section: make("tr", "", ...cells), cells, last: "" };
}

function showRow(entry, rank) {
  const ended = rank.ended_at_secs === null ? "–" : span(rank.ended_at_secs);
  const texts = [String(rank.rank), String(rank.device), word(rank), exit(rank), ended];
  const said = texts.join("\n");
  if (entry.last === said) return;
  entry.last = said;
  texts.forEach((text, index) => write(entry.cells[index], text));
  mark(entry.section, isFailed(rank));
}

// Make `parent` hold one entry for each item, in their order; entries that are there are kept, and
// what is in place is not touched.
function keyed(parent, entries, items, keyOf, create, show) {
  const keys = new Set(items.map(keyOf));
  for (const [key, entry] of entries) {
    if (keys.has(key)) continue;
    entry.section.remove();
    entries.delete(key);
  }
  let next = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    let entry = entries.get(key);
    if (!entry) {
      entry = create();
      entries.set(key, entry);
    }
    show(entry, item);
    if (entry.section === next) next = next.nextSibling;
    else parent.insertBefore(entry.section, next);
  }
}

// -- failures ---------------------------------------------------------------------------------

function failuresOf(state) {
  const found = [];
  for (const member of state.members) {
    if (member.lost !== null) {
      const after = member.left_at_secs === null ? "" : ` after ${span(member.left_at_secs)}`;
      found.push({ key: `host ${member.host}`, host: member.host, text: `host lost${after}: ${member.lost}` });
    }
    for (const rank of member.ranks.filter((each) => each.state === "exited" && isFailed(each))) {
      const after = rank.ended_at_secs === null ? "" : ` after ${span(rank.ended_at_secs)}`;
      const how = rank.signal === null ? `exit code ${exit(rank)}` : exit(rank);
      found.push({ key: `rank ${rank.rank}`, host: member.host, text: `rank ${rank.rank} failed${after}: ${how}` });
    }
  }
  return found;
}

function makeFailure() {
  const link = make("a");
  const text = make("span");
  return { section: make("li", "", link, " – ", text), link, text };
}

function showFailure(entry, failure) {
  const target = `#${hosts.get(failure.host).section.id}`;
  if (entry.link.getAttribute("href") !== target) entry.link.setAttribute("href", target);
  write(entry.link, failure.host);
  write(entry.text, failure.text);
}

function showFailures(state) {
  const found = failuresOf(state);
  const left = found.length - FAILURES_LISTED;
  at("failures").hidden = found.length === 0;
  keyed(at("failure-list"), failures, found.slice(0, FAILURES_LISTED), (each) => each.key, makeFailure, showFailure);
  at("failures-left-out").hidden = left <= 0;
  if (left > 0) write(at("failures-left-out"), `And ${left} more, marked in the tables below.`);
}

// -- the whole --------------------------------------------------------------------------------

function showStart(state) {
  const byHand = state.start_mode === "manual" || state.start_mode === "hybrid";
  at("start").hidden = !(byHand && state.phase === "staging" && !state.start_armed);
}

function show(state) {
  shown = state;
  received = performance.now();
  write(at("phase"), state.outcome === null ? state.phase : `over: ${state.outcome}`);
  mark(at("phase"), state.phase === "failed" || state.failed_ranks > 0);
  write(at("summary"), summary(state));
  showWindow(state);
  showStart(state);
  showFacts(state);
  keyed(at("hosts"), hosts, state.members, (member) => member.host, makeHost, showHost);
  at("hosts-note").hidden = state.members.length > 0;
  showFailures(state);
  showConnection(false);
}

function showConnection(isLost) {
  if (isLost && !lost) {
    const time = new Date().toLocaleTimeString();
    const what = shown === null ? "could not be made" : "was lost";
    const old = shown === null ? "" : " What is shown here is old.";
    write(at("connection"), `The connection to the controller ${what} at ${time}.${old} Trying again …`);
  }
  lost = isLost;
  at("connection").hidden = !lost;
  if (shown === null) return;
  const text = title(shown);
  if (document.title !== text) document.title = text;
}

// -- the controller ---------------------------------------------------------------------------

// The token is taken out of the address bar, from where it would end up in bookmarks and pictures.
function takeToken() {
  const url = new URL(location.href);
  const token = url.searchParams.get("token");
  if (token !== null) {
    url.searchParams.delete("token");
    history.replaceState(null, "", url);
  }
  return token === null ? "" : `?token=${encodeURIComponent(token)}`;
}

const query = takeToken();

function connect() {
  const source = new EventSource(`events${query}`);
  source.onmessage = (message) => {
    const state = JSON.parse(message.data);
    show(state);
    if (state.outcome !== null) source.close();
  };
  source.onerror = () => {
    showConnection(true);
    // It comes back by itself after a lost connection, but not after an answer that is a refusal.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, RETRY_MS);
  };
}

async function start() {
  const button = at("start-button");
  button.disabled = true;
  write(at("start-answer"), "Giving the start …");
  write(at("start-answer"), await askForStart());
  button.disabled = false;
}

async function askForStart() {
  try {
    const answer = await fetch(`start${query}`, { method: "POST" });
    const said = (await answer.text()).trim().slice(0, ANSWER_LENGTH);
    if (answer.ok) return "The controller has taken the start.";
    const hint = answer.status === 403 ? ". Open this page with ?token=… in its address to be allowed to." : "";
    return `The controller refused the start (${answer.status}): ${said}${hint}`;
  } catch (error) {
    return `The controller could not be reached: ${error.message}`;
  }
}

at("start-button").addEventListener("click", start);
setInterval(tick, 500);
connect();
