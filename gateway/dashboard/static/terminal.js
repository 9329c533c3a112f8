// A terminal in the page: it starts a shell, or joins a process, and goes on after a broken connection.
'use strict';
(() => {
  const box = document.getElementById('terminal');
  const state = document.getElementById('terminal-state');
  const form = document.getElementById('terminal-start');
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const names = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'];

  function theme() {
    const t = {background: css('--log'), foreground: css('--ink'), cursor: css('--ink'), selectionBackground: css('--rail')};
    names.forEach((n, i) => {
      t[n] = css('--f' + i);
      t['bright' + n[0].toUpperCase() + n.slice(1)] = css('--f' + (i + 8));
    });
    return t;
  }

  const screen = new Terminal({
    fontFamily: 'ui-monospace, Menlo, Consolas, "Liberation Mono", monospace', fontSize: 13, scrollback: 5000, screenReaderMode: true,
    theme: theme(), linkHandler: {activate() {}}, // links of the output lead nowhere
  });
  const fit = new FitAddon.FitAddon();
  screen.loadAddon(fit);
  const typed = new TextEncoder();
  let socket = null;
  let process = new URL(location.href).searchParams.get('process') || '';
  let seq = 0;
  let offset = -1; // of the next byte; unknown before the first position
  let ended = false;
  let opened = false;

  const say = (text) => { state.textContent = text; };
  const send = (data) => { if (socket && socket.readyState === WebSocket.OPEN) socket.send(data); };

  function control(m) {
    if (m.type === 'waiting') say('waiting: ' + m.error);
    if (m.type === 'ready') {
      process = m.process;
      history.replaceState(null, '', '?process=' + encodeURIComponent(process));
      say('connected.');
      send(JSON.stringify({type: 'resize', rows: screen.rows, cols: screen.cols}));
    }
    if (m.type === 'position') {
      seq = m.seq || seq;
      offset = m.offset;
    }
    if (m.type === 'exit') {
      ended = true;
      say('ended: ' + (m.reason === 'exited' ? '' : m.reason + ', ') + 'exit ' + m.exit_code);
    }
    if (m.type === 'error') {
      ended = m.code !== 'unavailable' && m.code !== 'deadline_exceeded';
      say(m.error);
    }
    if (ended) form.hidden = false;
  }

  function connect(first) {
    form.hidden = true;
    const path = process ? 'processes/' + encodeURIComponent(process) : 'threads/' + encodeURIComponent(box.dataset.thread);
    const url = new URL('/ui/v1/' + path + '/terminal', location.href);
    url.protocol = url.protocol.replace('http', 'ws');
    const s = new WebSocket(url, ['sluice.terminal.v1']);
    s.binaryType = 'arraybuffer';
    socket = s;
    say('connecting');
    s.onopen = () => s.send(JSON.stringify({...first, rows: screen.rows, cols: screen.cols}));
    s.onmessage = ({data}) => {
      if (typeof data === 'string') {
        control(JSON.parse(data));
        return;
      }
      if (offset >= 0) offset += data.byteLength;
      screen.write(new Uint8Array(data));
    };
    s.onclose = () => {
      if (socket !== s || ended) return;
      socket = null;
      if (!process) {
        say('The gateway refused the connection.');
        form.hidden = false;
        return;
      }
      say('reconnecting');
      setTimeout(() => { if (!socket && !ended) connect({type: 'attach', ...(offset >= 0 ? {seq, offset} : {})}); }, 2000);
    };
  }

  function open() {
    if (opened) return;
    opened = true;
    screen.open(box);
    new ResizeObserver(() => fit.fit()).observe(box);
    requestAnimationFrame(() => fit.fit()); // it knows the size of a character then
    screen.onData((text) => send(typed.encode(text)));
    screen.onResize(({rows, cols}) => send(JSON.stringify({type: 'resize', rows, cols})));
    dark.addEventListener('change', () => { screen.options.theme = theme(); });
    screen.attachCustomKeyEventHandler((e) => { // the tab key belongs to the terminal
      if (e.key !== 'Escape' || !e.shiftKey) return true;
      document.getElementById('main').focus();
      return false;
    });
  }

  form.addEventListener('submit', (e) => {
    e.preventDefault();
    open();
    screen.reset();
    process = '';
    offset = -1;
    seq = 0;
    ended = false;
    connect({type: 'start', command: 'sh', args: ['-c', form.elements.command.value], env: {TERM: 'xterm-256color'}});
    screen.focus();
  });
  if (process) {
    open();
    connect({type: 'attach'});
  }
})();
