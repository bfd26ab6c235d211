// The search runs in a worker, and browsers start none for a page that is a file. This one runs the worker's script in
// a hidden frame, so that the search works in a copy of the site without a server. Elsewhere it changes nothing.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      const page = this.inside.document;
      page.open();
      page.write("<!doctype html><body></body>");
      page.close();
      // The worker's two ways to the outside.
      this.inside.postMessage = data =>
        setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
      this.inside.importScripts = (...urls) =>
        urls.reduce((before, each) => before.then(() => this.load(each)), Promise.resolve());
      this.ready = this.load(new URL(url, location.href).href);
    }

    load(url) {
      return new Promise((loaded, failed) => {
        const script = this.inside.document.createElement("script");
        script.onload = loaded;
        script.onerror = () => failed(new Error(`${url} cannot be loaded`));
        script.src = url;
        this.inside.document.body.appendChild(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
