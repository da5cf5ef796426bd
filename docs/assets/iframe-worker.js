/* A worker for pages that are read from a folder: browsers start none from file://, so the script runs in a hidden
   frame. The theme's search needs no more of a worker than messages both ways and importScripts. */
(() => {
  if (location.protocol !== "file:") return

  const load = (page, url) => new Promise((done, failed) => {
    const script = page.createElement("script")
    script.src = url
    script.onload = done
    script.onerror = () => failed(new Error(`no script ${url}`))
    page.body.append(script)
  })

  class FrameWorker extends EventTarget {
    constructor(url) {
      super()
      this.waiting = [] // messages that came before the script
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.title = "Search"
      this.frame.srcdoc = "<!doctype html><body></body>"
      this.frame.onload = () => this.start(new URL(url, location.href))
      document.body.append(this.frame)
    }

    async start(url) {
      const inside = this.frame.contentWindow
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = (...urls) => Promise.all(urls.map((each) => load(inside.document, new URL(each, url))))
      await load(inside.document, url)
      const waiting = this.waiting
      this.waiting = null
      waiting.forEach((data) => this.postMessage(data))
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
    }

    terminate() {
      this.frame.remove()
    }
  }

  window.Worker = FrameWorker
})()
