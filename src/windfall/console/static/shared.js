// A worker that all windows of a browser share: it keeps one stream of news for them. A browser opens six connections
// to a server; with a stream each, the seventh window would get nothing. Windows that are not seen are told nothing.

const windows = new Map(); // port: whether the window is seen
let source = null;

const seen = () => [...windows.values()].filter(Boolean).length;

function tell(name, data = "") {
  for (const [port, sees] of windows) if (sees) port.postMessage({ name, data, windows: seen() });
}

function open() {
  source?.close();
  source = new EventSource("/v1/stream");
  for (const name of ["hello", "change", "signed-out"]) source.addEventListener(name, (event) => tell(name, event.data));
  source.onerror = () => tell("error");
}

// "listen": this window is seen; "anew": somebody signed in, so the stream is of somebody else; "quiet", "gone": it is not.
function heard(port, what) {
  windows.set(port, what === "listen" || what === "anew");
  if (!seen()) { source?.close(); source = null; return; }
  if (!source || source.readyState === EventSource.CLOSED || what === "anew") open();
  else if (source.readyState === EventSource.OPEN && what === "listen") port.postMessage({ name: "hello", data: "", windows: seen() });
  tell("windows");
}

self.onconnect = ({ ports: [port] }) => {
  windows.set(port, false);
  port.onmessage = ({ data }) => { heard(port, data); if (data === "gone") windows.delete(port); };
};
