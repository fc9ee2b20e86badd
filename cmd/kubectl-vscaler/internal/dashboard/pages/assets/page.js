// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Reads the page again, every few seconds, and replaces what is in <main>. Without this script, the
// browser loads the whole page once a minute. What a user has opened, focused or scrolled to stays.
(() => {
  'use strict';
  const every = 1000 * Number(document.body.dataset.refresh);
  const patience = 30000;
  const banner = document.getElementById('banner');
  const news = document.getElementById('news');
  const button = document.getElementById('pause');
  let paused = false;
  let reading = false;
  let timer;

  const clock = () => new Date().toTimeString().slice(0, 8);
  const isSelected = (e) => !getSelection().isCollapsed && getSelection().containsNode(e, true);

  // An alert is read aloud when its text changes: so the text has no running time in it.
  function warn(kind, text) {
    if (banner.dataset.kind === kind) return;
    banner.dataset.kind = kind;
    banner.textContent = text;
    banner.hidden = false;
  }

  function calm() {
    if (banner.hidden) return;
    banner.hidden = true;
    banner.textContent = '';
    delete banner.dataset.kind;
    news.textContent = 'Connected again at ' + clock() + '.';
  }

  function replace(text) {
    const next = new DOMParser().parseFromString(text, 'text/html');
    const main = document.getElementById('main');
    const fresh = next.getElementById('main');
    if (!fresh) return;
    const open = new Set([...main.querySelectorAll('details[open]')].map((d) => d.id));
    const typed = new Map([...main.querySelectorAll('input, select')].map((f) => [f.id, f.value]));
    const focused = document.activeElement && main.contains(document.activeElement) ? document.activeElement.id : '';
    const scrolled = new Map([...main.querySelectorAll('.wide')].map((w) => [w.id, w.scrollLeft]));
    for (const d of fresh.querySelectorAll('details')) d.open = open.has(d.id);
    main.replaceChildren(...fresh.childNodes);
    for (const [id, value] of typed) {
      const field = id && document.getElementById(id);
      if (field) field.value = value;
    }
    for (const [id, left] of scrolled) {
      const box = id && document.getElementById(id);
      if (box) box.scrollLeft = left;
    }
    const again = focused && document.getElementById(focused);
    if (again) again.focus({ preventScroll: true });
    const at = next.getElementById('read-at');
    if (at) document.getElementById('read-at').replaceWith(at);
    const state = document.getElementById('state');
    if (state && news.dataset.state !== state.textContent) {
      if (news.dataset.state) news.textContent = 'Now: ' + state.textContent;
      news.dataset.state = state.textContent;
    }
  }

  // read is true if it makes sense to go on.
  async function read() {
    let response, text;
    try {
      response = await fetch(location.href, { cache: 'no-store', signal: AbortSignal.timeout(patience) });
      text = await response.text();
    } catch {
      warn('lost', 'Connection lost at ' + clock() + '. The command does not answer: it was stopped, or the tunnel to it was. ' +
        'The page shows what was read last, and tries again.');
      return true;
    }
    if (response.ok) {
      calm();
      if (!paused && ![...document.querySelectorAll('pre')].some(isSelected)) replace(text); // replaced text is no longer selected
      return true;
    }
    const refusal = new DOMParser().parseFromString(text, 'text/html');
    const title = refusal.querySelector('h1');
    const problem = refusal.getElementById('problem');
    warn('refused-' + response.status, (title ? title.textContent + '. ' : '') + (problem ? problem.textContent : 'Status ' + response.status) +
      ' The page shows what was read last.');
    return response.status !== 401;
  }

  // One reading at a time, and none while nobody sees the page.
  async function again() {
    if (reading) return;
    clearTimeout(timer);
    reading = true;
    const goesOn = paused || document.hidden || await read();
    reading = false;
    if (goesOn) timer = setTimeout(again, every);
  }

  document.addEventListener('click', async ({ target }) => {
    if (!target.matches('.copy')) return;
    const yaml = target.nextElementSibling;
    try {
      await navigator.clipboard.writeText(yaml.textContent);
      target.textContent = 'Copied';
      news.textContent = 'Copied.';
    } catch {
      getSelection().selectAllChildren(yaml);
      news.textContent = 'The browser refuses to copy. The text is selected.';
    }
  });
  document.documentElement.classList.add('scripted');
  button.hidden = false;
  button.addEventListener('click', () => {
    paused = !paused;
    button.setAttribute('aria-pressed', String(paused));
    button.textContent = paused ? 'Resume updates' : 'Pause updates';
    news.textContent = paused ? 'Updates are paused.' : 'Updates go on.';
  });
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) again();
  });
  const state = document.getElementById('state');
  if (state) news.dataset.state = state.textContent;
  timer = setTimeout(again, every);
})();
