// Shows the output of a process as it comes. Output is hostile: of its escape sequences only colors and styles have an effect, and text
// gets into the page as text.
'use strict';
(() => {
  const maxLines = 5000;
  const maxLine = 8000; // characters, after which a line is broken

  // Style is what SGR sequences have set.
  class Style {
    constructor() { this.reset(); }

    reset() {
      this.fg = this.bg = -1;
      this.on = new Set();
    }

    apply(params) {
      const p = params.split(/[;:]/).map((s) => parseInt(s || '0', 10));
      for (let i = 0; i < p.length && i < 32; i++) {
        const n = p[i];
        if (n === 0) this.reset();
        else if (Style.names[n]) this.on.add(Style.names[n]);
        else if (n === 22) { this.on.delete('bold'); this.on.delete('dim'); }
        else if (n === 23 || n === 24 || n === 27 || n === 29) this.on.delete(Style.names[n - 20]);
        else if (n >= 30 && n <= 37) this.fg = n - 30;
        else if (n >= 40 && n <= 47) this.bg = n - 40;
        else if (n >= 90 && n <= 97) this.fg = n - 82;
        else if (n >= 100 && n <= 107) this.bg = n - 92;
        else if (n === 39) this.fg = -1;
        else if (n === 49) this.bg = -1;
        else if (n === 38 || n === 48) {
          let c = -1;
          if (p[i + 1] === 5) { c = Style.of256(p[i + 2]); i += 2; } else if (p[i + 1] === 2) { c = Style.nearest(p[i + 2], p[i + 3], p[i + 4]); i += 4; }
          if (n === 38) this.fg = c; else this.bg = c;
        }
      }
    }

    classes() {
      const c = [...this.on];
      if (this.fg >= 0) c.push('f' + this.fg);
      if (this.bg >= 0) c.push('b' + this.bg);
      return c.join(' ');
    }

    // of256 and nearest choose one of the 16 colors that are readable in light and dark.
    static of256(n) {
      if (!(n >= 0 && n <= 255)) return -1;
      if (n < 16) return n;
      if (n > 231) return Style.nearest(8 + 10 * (n - 232), 8 + 10 * (n - 232), 8 + 10 * (n - 232));
      const level = (v) => v ? 55 + 40 * v : 0;
      return Style.nearest(level(Math.floor((n - 16) / 36)), level(Math.floor((n - 16) / 6) % 6), level((n - 16) % 6));
    }

    static nearest(r, g, b) {
      const most = Math.max(r, g, b);
      if (!(most >= 0 && most <= 255)) return -1;
      if (most < 50) return 0;
      const bits = (r > most / 2 ? 1 : 0) | (g > most / 2 ? 2 : 0) | (b > most / 2 ? 4 : 0);
      if (bits === 7) return most < 140 ? 8 : most < 220 ? 7 : 15;
      return most > 200 ? bits + 8 : bits;
    }
  }
  Style.names = {1: 'bold', 2: 'dim', 3: 'italic', 4: 'underline', 7: 'inverse', 9: 'strike'};

  // Stream turns the text of stdout or stderr into elements.
  class Stream {
    constructor(view, name) {
      this.view = view;
      this.name = name;
      this.style = new Style();
      this.state = 'text';
      this.params = '';
      this.text = '';
      this.line = null;
      this.length = 0;
      this.back = false; // a carriage return came: what follows replaces the line
    }

    write(data) {
      for (const c of data) this.take(c, c.codePointAt(0));
      this.flush();
    }

    take(c, n) {
      switch (this.state) {
        case 'text':
          if (n === 0x1b) this.state = 'escape';
          else if (n === 0x9b) this.begin('csi');
          else if (n === 0x90 || n === 0x9d || n === 0x9e || n === 0x9f || n === 0x98) this.begin('string');
          else if (n === 10) this.end();
          else if (n === 13) { this.flush(); this.back = true; } else if (n === 9 || n >= 0x20 && !(n >= 0x7f && n < 0xa0)) this.add(Stream.hidden(n) ? '\uFFFD' : c);
          return;
        case 'escape':
          if (c === '[') this.begin('csi');
          else if (c === ']' || c === 'P' || c === 'X' || c === '^' || c === '_') this.begin('string');
          else if (n >= 0x20 && n <= 0x2f) this.state = 'escape'; // the last byte follows
          else this.state = 'text';
          return;
        case 'csi':
          if (n >= 0x40 && n <= 0x7e) {
            this.state = 'text';
            if (c === 'm' && /^[0-9;:]*$/.test(this.params)) { this.flush(); this.style.apply(this.params); }
          } else if (n < 0x20 || this.params.length > 64) this.again(c, n);
          else this.params += c;
          return;
        case 'string': // of the terminal, such as its title; it ends with BEL or ESC \
          if (n === 7 || n === 0x9c || n === 0x18 || n === 0x1a) this.state = 'text';
          else if (n === 0x1b) this.state = 'escape';
          else if (n === 10 || ++this.params > 4096) this.again(c, n);
      }
    }

    begin(state) {
      this.flush();
      this.state = state;
      this.params = state === 'csi' ? '' : 0;
    }

    // again ends a sequence that is none.
    again(c, n) {
      this.state = 'text';
      this.take(c, n);
    }

    // hidden reports characters that turn the direction of the text around them, or break lines.
    static hidden(n) {
      return n === 0x61c || n === 0x200e || n === 0x200f || n >= 0x2028 && n <= 0x202e || n >= 0x2066 && n <= 0x2069;
    }

    add(c) {
      if (this.back) {
        this.back = false;
        if (this.line) this.line.replaceChildren();
        this.length = 0;
      }
      if (this.length >= maxLine) this.end();
      this.text += c;
      this.length++;
    }

    flush() {
      if (!this.text) return;
      if (!this.line) this.line = this.view.newLine(this.name);
      const span = document.createElement('span');
      span.className = this.style.classes();
      span.textContent = this.text;
      this.line.append(span);
      this.text = '';
    }

    end() {
      this.flush();
      if (!this.line) this.line = this.view.newLine(this.name);
      this.view.finished(this.line);
      this.line = null;
      this.length = 0;
      this.back = false;
    }
  }

  class Output {
    constructor(section) {
      this.section = section;
      this.lines = section.querySelector('.lines');
      this.connection = section.querySelector('.connection');
      this.matches = section.querySelector('.matches');
      this.earlier = section.querySelector('.earlier');
      this.search = section.querySelector('#search');
      this.follow = section.querySelector('[data-do=follow]');
      this.hits = [];
      this.current = -1;
      this.listen();
    }

    listen() {
      let pause = 0;
      this.search.addEventListener('input', () => {
        clearTimeout(pause);
        pause = setTimeout(() => this.find(), 120);
      });
      this.search.addEventListener('keydown', (e) => {
        if (e.key === 'Enter') {
          e.preventDefault();
          this.go(e.shiftKey ? -1 : 1);
        }
      });
      this.section.addEventListener('click', (e) => {
        const what = e.target.dataset && e.target.dataset.do;
        if (what === 'next') this.go(1);
        if (what === 'previous') this.go(-1);
      });
      this.section.addEventListener('change', (e) => {
        const what = e.target.dataset.do;
        if (what === 'only') this.lines.classList.toggle('only', e.target.checked);
        if (what === 'wrap') this.lines.classList.toggle('wrap', e.target.checked);
        if (what === 'follow') this.scroll();
      });
      this.lines.addEventListener('scroll', () => {
        this.follow.checked = this.lines.scrollHeight - this.lines.scrollTop - this.lines.clientHeight < 40;
      });
      this.section.addEventListener('sluice-open', (e) => this.open(e.detail));
      document.addEventListener('visibilitychange', () => this.visible());
      addEventListener('pagehide', () => this.close());
      addEventListener('pageshow', (e) => { if (e.persisted && !this.ended) this.connect(); });
    }

    // visible leaves the stream of a page that stays hidden: browsers allow only six to a gateway without TLS.
    visible() {
      clearTimeout(this.hiding);
      if (document.hidden) this.hiding = setTimeout(() => this.close(), 30000);
      else if (this.url && !this.source && !this.ended) this.connect();
    }

    open(url) {
      this.close();
      this.url = url;
      this.last = '';
      this.ended = false;
      this.dropped = 0;
      this.earlier.hidden = true;
      this.lines.replaceChildren();
      this.streams = {stdout: new Stream(this, 'stdout'), stderr: new Stream(this, 'stderr')};
      this.connect();
    }

    close() {
      if (this.source) this.source.close();
      this.source = null;
    }

    connect() {
      const url = new URL(this.url, location.href);
      if (this.last) url.searchParams.set('after', this.last);
      const source = new EventSource(url);
      this.source = source;
      this.say('connecting');
      source.onopen = () => this.say('live');
      source.onmessage = (e) => this.take(e);
      source.onerror = () => {
        if (this.ended || this.source !== source) return;
        this.say('reconnecting');
        if (source.readyState === EventSource.CLOSED) {
          this.source = null;
          setTimeout(() => { if (!this.source && !this.ended) this.connect(); }, 3000);
        }
      };
    }

    take(e) {
      const data = JSON.parse(e.data);
      if (e.lastEventId) this.last = e.lastEventId;
      if (data.type === 'stdout' || data.type === 'stderr') this.streams[data.type].write(data.data || '');
      if (data.type === 'gap') this.note('output is missing here: ' + data.gap.reason);
      if (data.type === 'exit') {
        this.ended = true;
        this.close();
        const how = data.reason === 'exited' ? 'exit ' + data.exitCode : data.reason + ', exit ' + data.exitCode;
        this.say('ended: ' + how);
        if (!this.lines.firstChild) this.note('The process printed nothing.');
        this.section.classList.toggle('failed', data.exitCode !== 0);
        document.dispatchEvent(new CustomEvent('sluice-changed'));
      }
      this.scroll();
    }

    say(text) { this.connection.textContent = text; }

    note(text) {
      const line = this.newLine('note');
      line.textContent = text;
    }

    newLine(name) {
      const line = document.createElement('div');
      line.className = 'line ' + name;
      this.lines.append(line);
      while (this.lines.childElementCount > maxLines) {
        this.lines.firstChild.remove();
        this.dropped++;
      }
      if (this.dropped) {
        this.earlier.hidden = false;
        this.earlier.textContent = this.dropped + ' earlier lines are not kept on this page.';
      }
      return line;
    }

    finished(line) {
      if (!line.firstChild) line.textContent = '\n';
      if (this.search.value && this.test(line)) {
        this.hits.push(line);
        this.count();
      }
    }

    scroll() {
      if (!this.follow.checked || this.scrolling) return;
      this.scrolling = true;
      requestAnimationFrame(() => {
        this.scrolling = false;
        this.lines.scrollTop = this.lines.scrollHeight;
      });
    }

    test(line) {
      const hit = line.textContent.toLowerCase().includes(this.search.value.toLowerCase());
      line.classList.toggle('hit', hit);
      return hit;
    }

    find() {
      this.hits = [];
      this.current = -1;
      for (const line of this.lines.children) {
        line.classList.remove('hit', 'current');
        if (this.search.value && this.test(line)) this.hits.push(line);
      }
      this.count();
      this.highlight();
      if (this.hits.length) this.go(1);
    }

    count() {
      this.hits = this.hits.filter((line) => line.isConnected);
      this.matches.textContent = this.search.value ? this.hits.length + (this.hits.length === 1 ? ' line' : ' lines') : '';
    }

    // highlight marks the text itself, where the browser can without new elements.
    highlight() {
      if (!window.CSS || !CSS.highlights) return;
      const want = this.search.value.toLowerCase();
      const ranges = [];
      for (const line of want ? this.hits.slice(0, 1000) : []) {
        for (const span of line.childNodes) {
          const text = span.firstChild || span;
          const value = (text.nodeValue || '').toLowerCase();
          for (let at = value.indexOf(want); at >= 0 && ranges.length < 5000; at = value.indexOf(want, at + want.length)) {
            const r = new Range();
            if (at + want.length > text.length) break;
            r.setStart(text, at);
            r.setEnd(text, at + want.length);
            ranges.push(r);
          }
        }
      }
      CSS.highlights.set('found', new Highlight(...ranges));
    }

    go(step) {
      this.count();
      if (!this.hits.length) return;
      this.follow.checked = false;
      if (this.hits[this.current]) this.hits[this.current].classList.remove('current');
      this.current = (this.current + step + this.hits.length) % this.hits.length;
      const line = this.hits[this.current];
      line.classList.add('current');
      line.scrollIntoView({block: 'nearest'});
    }
  }

  for (const section of document.querySelectorAll('[data-output]')) {
    const o = new Output(section);
    if (section.dataset.url) o.open(section.dataset.url);
  }
})();
