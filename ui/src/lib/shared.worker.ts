/** The shared worker: connects each tab to the one stream. */

import { Shared, type Told } from './shared';
import { Stream } from './stream';

const shared = new Shared((say) => new Stream(say));

(self as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = ({ ports: [port] }) => {
  if (!port) return;
  port.onmessage = ({ data }: MessageEvent<Told>) => shared.tell(port, data);
};
