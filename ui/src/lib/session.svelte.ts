/** Who looks. Without keys in the server's config everybody on this machine may do everything. */

import { ApiError, call, get, post, whenUnauthorized } from './api';
import type { Session } from './types';

class Current {
  #session = $state<Session | undefined>();
  /** Whether the server could not be asked. */
  unreachable = $state(false);

  constructor() {
    whenUnauthorized(() => {
      this.#session = { required: true };
    });
  }

  get known(): boolean {
    return this.#session !== undefined;
  }
  get required(): boolean {
    return this.#session?.required ?? false;
  }
  get name(): string | undefined {
    return this.#session?.name;
  }
  get role() {
    return this.#session?.role;
  }
  get signedOut(): boolean {
    return this.required && this.role === undefined;
  }
  /** Whether buttons that change something are shown. */
  get mayAct(): boolean {
    return this.known && (!this.required || this.role === 'operator' || this.role === 'admin');
  }
  /** Actions on whole lanes and upstreams: refused to keys of some tenants. */
  get mayActForAll(): boolean {
    return this.mayAct && !this.#session?.tenants?.length;
  }
  /** Gates are shared by all lanes that use an upstream: refused to keys of some lanes too. */
  get mayReset(): boolean {
    return this.mayActForAll && !this.#session?.lanes?.length;
  }
  /** Producers send jobs and look up their own; lists are not for them. */
  get maySee(): boolean {
    return this.role !== 'producer';
  }

  async load(): Promise<void> {
    try {
      this.#session = await get<Session>('/v1/session');
    } catch (error) {
      // A server without sessions: its calls say 401 if a key is needed.
      if (error instanceof ApiError && error.status === 404) this.#session ??= { required: false, role: 'admin' };
      else this.unreachable = true;
    }
  }

  async signIn(key: string): Promise<void> {
    this.#session = await post<Session>('/v1/session', { key });
  }

  async signOut(): Promise<void> {
    await call('DELETE', '/v1/session').catch(() => {});
    this.#session = { required: true };
  }
}

export const session = new Current();
