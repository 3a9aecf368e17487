import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Resource } from './resource.svelte';

class Screen extends EventTarget {
  hidden = false;
  show(hidden: boolean) {
    this.hidden = hidden;
    this.dispatchEvent(new Event('visibilitychange'));
  }
}

let screen: Screen;
let loads: number;
let resource: Resource<number>;
beforeEach(() => {
  vi.useFakeTimers();
  screen = new Screen();
  vi.stubGlobal('document', screen);
  loads = 0;
  resource = new Resource(async () => ++loads);
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test('changes in quick succession are one load, after a while', async () => {
  await resource.load();
  for (let i = 0; i < 9; i++) resource.refresh(2000);
  await vi.advanceTimersByTimeAsync(1999);
  expect(loads).toBe(1);
  await vi.advanceTimersByTimeAsync(1);
  expect(loads).toBe(2);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(loads).toBe(2);
});

test('what changed while nobody looked is loaded when somebody does', async () => {
  screen.show(true);
  resource.refresh(0);
  resource.refresh(0);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(loads).toBe(0);
  screen.show(false);
  expect(loads).toBe(1);
  screen.show(true);
  screen.show(false);
  expect(loads).toBe(1);
});

test('of a page that is gone nothing is loaded, whenever it went', async () => {
  resource.refresh(2000);
  resource.dispose();
  screen.show(true);
  resource.refresh(0);
  await vi.advanceTimersByTimeAsync(1);
  resource.dispose();
  screen.show(false);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(loads).toBe(0);
});
