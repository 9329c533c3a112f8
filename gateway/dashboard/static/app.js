// Keeps a page up to date: it loads the page again when something has happened, and changes what differs.
'use strict';
(() => {
  const main = document.getElementById('main');
  const live = document.getElementById('live');
  const notice = document.getElementById('notice');

  const keyOf = (n) => n.nodeType !== 1 ? '' : n.hasAttribute('data-keep') ? 'keep' : n.id || n.getAttribute('data-key') || '';

  // morph makes a node like a fresh one, and keeps its elements: focus, scroll positions and selections stay.
  function morph(old, fresh) {
    if (old.nodeType !== 1) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    if (old.hasAttribute('data-keep')) return;
    for (const a of Array.from(old.attributes)) {
      if (!fresh.hasAttribute(a.name) && !(old.nodeName === 'DETAILS' && a.name === 'open')) old.removeAttribute(a.name);
    }
    for (const a of fresh.attributes) {
      if (old.getAttribute(a.name) !== a.value) old.setAttribute(a.name, a.value);
    }
    morphChildren(old, fresh);
  }

  function morphChildren(old, fresh) {
    const keyed = new Map();
    for (const n of old.childNodes) if (keyOf(n)) keyed.set(keyOf(n), n);
    let cursor = old.firstChild;
    for (const f of Array.from(fresh.childNodes)) {
      const key = keyOf(f);
      let match = null;
      if (key) {
        match = keyed.get(key);
        keyed.delete(key);
      } else if (cursor && !keyOf(cursor) && cursor.nodeName === f.nodeName) match = cursor;
      if (!match || match.nodeName !== f.nodeName) {
        old.insertBefore(document.importNode(f, true), cursor);
        continue;
      }
      if (match === cursor) cursor = cursor.nextSibling;
      else old.insertBefore(match, cursor);
      morph(match, f);
    }
    while (cursor) {
      const next = cursor.nextSibling;
      cursor.remove();
      cursor = next;
    }
  }

  function say(text) {
    notice.textContent = text;
  }

  function show(text, state) {
    if (!live) return;
    live.hidden = false;
    live.textContent = text;
    live.className = 'live ' + state;
  }

  // The page is loaded at most once a second, and every 10 s for its times. While a form leads away, it must not lead elsewhere.
  let leaving = false;
  addEventListener('pageshow', () => { leaving = false; });
  let timer = 0;
  let loading = false;
  let again = false;
  function refresh() {
    if (timer) return;
    timer = setTimeout(load, 1000);
  }
  function load() {
    timer = 0;
    if (document.hidden || leaving) return;
    if (loading) {
      again = true;
      return;
    }
    loading = true;
    const x = new XMLHttpRequest();
    x.open('GET', location.href);
    x.responseType = 'document';
    x.timeout = 20000;
    x.onloadend = () => {
      loading = false;
      if (leaving) return;
      if (again) {
        again = false;
        refresh();
      }
      const fresh = x.response && x.response.getElementById('main');
      if (x.responseURL && new URL(x.responseURL).pathname === '/ui/login') location.assign(x.responseURL);
      else if (x.status === 200 && fresh) {
        morphChildren(main, fresh);
        document.title = x.response.title;
        show('live', 'on');
      } else show('no answer, trying again', 'off');
    };
    x.send();
  }

  // A hidden page needs no connection: browsers allow only six to a gateway without TLS.
  let source = null;
  function follow() {
    const url = document.body.dataset.live;
    if (!url || source) return;
    source = new EventSource(url);
    source.onopen = () => show('live', 'on');
    source.onmessage = refresh;
    source.onerror = () => {
      show('reconnecting', 'off');
      if (source && source.readyState === EventSource.CLOSED) {
        source = null;
        setTimeout(() => { load(); follow(); }, 5000);
      }
    };
  }
  function leave() {
    if (source) source.close();
    source = null;
  }
  if (document.body.dataset.live) {
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) leave();
      else {
        follow();
        load();
      }
    });
    addEventListener('pagehide', leave);
    addEventListener('pageshow', (e) => { if (e.persisted) follow(); });
    setInterval(refresh, 10000);
    if (!document.hidden) follow();
  }
  document.addEventListener('sluice-changed', refresh);

  // request uses /v1 as this page's person. It returns what JSON came; it throws an error with a text for people.
  async function request(method, url, body) {
    let r;
    try {
      r = await fetch(url, {method, headers: body ? {'Content-Type': 'application/json'} : {}, body: body && JSON.stringify(body)});
    } catch {
      throw new Error('The gateway does not answer. Is it running?');
    }
    const answer = r.headers.get('Content-Type') === 'application/json' ? await r.json() : {};
    if (r.status === 401) throw new Error('You are not signed in any more. Reload the page.');
    if (!r.ok) throw new Error(answer.error || 'The gateway answered with status ' + r.status + '.');
    return answer;
  }

  // during keeps a button from being pressed twice, and reports what fails.
  async function during(button, what) {
    button.disabled = true;
    say('');
    try {
      await what();
    } catch (e) {
      say(e.message);
    }
    button.disabled = false;
    refresh();
  }

  document.addEventListener('click', (e) => {
    const b = e.target.closest('[data-post],[data-delete]');
    if (!b || b.dataset.confirm && !confirm(b.dataset.confirm)) return;
    during(b, () => b.dataset.post ? request('POST', b.dataset.post) : request('DELETE', b.dataset.delete));
  });

  document.addEventListener('submit', (e) => {
    const f = e.target;
    const {run, message} = f.dataset;
    if (!run && !message) {
      leaving = !e.defaultPrevented;
      return;
    }
    e.preventDefault();
    const field = f.elements.command || f.elements.prompt;
    const text = field.value;
    during(f.querySelector('button'), async () => {
      if (message) {
        say('The agent works on its answer.');
        await request('POST', message, {prompt: text});
        field.value = '';
        say('');
        return;
      }
      const p = await request('POST', run, {command: 'sh', args: ['-c', text]});
      field.select();
      const started = f.parentElement.querySelector('.started');
      const link = document.createElement('a');
      link.href = '/ui/processes/' + encodeURIComponent(p.process);
      link.textContent = text;
      started.replaceChildren(link);
      started.hidden = false;
      const out = f.parentElement.querySelector('[data-output]');
      out.hidden = false;
      out.dispatchEvent(new CustomEvent('sluice-open', {detail: '/ui/v1/processes/' + encodeURIComponent(p.process) + '/output'}));
    });
  });
})();
