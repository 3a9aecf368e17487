import { href, parse, type Page, type Route } from './routes';

class Router {
  route = $state<Route>(parse(location.hash));

  constructor() {
    addEventListener('hashchange', () => {
      this.route = parse(location.hash);
    });
  }

  go(page: Page, id?: string | null, query?: Record<string, string | null | undefined>): void {
    location.hash = href(page, id, query);
  }

  /** Changes the query of the current page without a new entry in the browser's history. */
  filter(query: Record<string, string | null | undefined>): void {
    const { page, id } = this.route;
    if (page === 'unknown') return;
    history.replaceState(null, '', href(page, id, query));
    this.route = parse(location.hash);
  }
}

export const router = new Router();
