// Search on pages opened from the disk: browsers refuse to start a worker from a file, so it runs in a frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      addEventListener("message", (event) => {
        if (event.source !== inside) return;
        const copy = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(copy);
        this.onmessage?.(copy);
      });
      inside.document.open();
      inside.document.write(
        "<script>postMessage = (data) => parent.postMessage(data, '*');" +
          "importScripts = (...names) => names.forEach((name) => {" +
          "const script = document.createElement('script'); script.src = name; document.head.append(script); });" +
          `</scr${""}ipt><script src="${url}"></scr${""}ipt>`,
      );
      inside.document.close();
      this.ready = new Promise((resolve) => (this.frame.onload = resolve));
    }
    postMessage(message) {
      const data = structuredClone(message);
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
