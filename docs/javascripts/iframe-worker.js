// Search from the file system: browsers refuse workers of file: addresses, so a hidden frame takes the worker's place.
// Only `file:` pages are changed. The theme's search worker looks for `parent.IFrameWorker` and for the frame's first script.
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.head.appendChild(this.frame);
      this.frame.contentWindow.postMessage = (data) => this.answer(data);
      const inside = this.frame.contentDocument;
      inside.open();
      inside.write(
        "<!doctype html><html><body><script>" +
          "function importScripts(...urls) {" +
          "  return urls.reduce((before, url) => before.then(() => new Promise((resolve, reject) => {" +
          "    const script = document.createElement('script');" +
          "    script.src = url; script.onload = resolve; script.onerror = reject;" +
          "    document.body.appendChild(script);" +
          "  })), Promise.resolve());" +
          "}" +
          `</script><script src="${new URL(url, location.href)}"></script></body></html>`,
      );
      this.ready = new Promise((resolve) => this.frame.addEventListener("load", resolve, { once: true }));
      inside.close();
    }

    answer(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }

    postMessage(data) {
      this.ready.then(() => {
        this.frame.contentWindow.postMessage = (answer) => this.answer(answer);
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      });
    }

    terminate() {
      this.frame.remove();
    }
  }
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
