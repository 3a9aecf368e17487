//! Writes log lines on a separate thread, so that logging never waits for the reader of standard error. Lines that do not
//! fit into the buffer are dropped and counted.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// The most bytes of lines that wait to be written or are being written.
const BUFFER: usize = 1 << 20;
/// How long [`LogWriter::wait_written`] waits for a reader that stalls.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// Takes lines to be written. Each write is one whole line.
#[derive(Clone)]
pub(super) struct LogWriter(Arc<LogBuffer>);

#[derive(Default)]
struct LogBuffer {
    state: Mutex<BufferedLines>,
    changed: Condvar,
    /// All lines dropped so far.
    dropped: AtomicU64,
    /// The thread that writes.
    thread: OnceLock<ThreadId>,
}

#[derive(Default)]
struct BufferedLines {
    lines: Vec<u8>,
    /// Lines dropped since the last report.
    dropped: u64,
    /// Bytes that the thread is writing.
    writing: usize,
}

impl BufferedLines {
    fn has_work(&self) -> bool {
        !self.lines.is_empty() || self.dropped > 0
    }
}

impl LogWriter {
    /// Starts the thread that writes to `output`.
    pub(super) fn start(output: impl Write + Send + 'static) -> io::Result<Self> {
        let writer = Self(Arc::default());
        let shared = writer.0.clone();
        thread::Builder::new().name("eclusa-log".into()).spawn(move || shared.write_to(output))?;
        Ok(writer)
    }

    /// Waits until every line is written, or the reader has stalled for too long.
    pub(super) fn wait_written(&self) {
        let waits = |state: &mut BufferedLines| state.has_work() || state.writing > 0;
        drop(self.0.changed.wait_timeout_while(self.0.lock(), WRITE_TIMEOUT, waits));
    }

    /// Lines dropped so far.
    pub(super) fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        let waiting = state.writing + state.lines.len();
        // What the thread itself has to say, how many lines are missing, always fits.
        if waiting > 0
            && waiting + line.len() > BUFFER
            && self.0.thread.get() != Some(&thread::current().id())
        {
            state.dropped += 1;
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        } else {
            state.lines.extend_from_slice(line);
            self.0.changed.notify_all();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LogBuffer {
    fn lock(&self) -> MutexGuard<'_, BufferedLines> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_to(&self, mut output: impl Write) {
        self.thread.get_or_init(|| thread::current().id());
        loop {
            let (lines, dropped) = self.next();
            if dropped > 0 {
                // The first line after those that were taken.
                tracing::error!("{dropped} log lines dropped");
            }
            // With the reader gone there is nobody to tell.
            let _ = output.write_all(&lines).and_then(|()| output.flush());
        }
    }

    /// Waits for lines, and for the number of those that did not fit behind them.
    fn next(&self) -> (Vec<u8>, u64) {
        let mut state = self.lock();
        state.writing = 0;
        self.changed.notify_all();
        let idle = |state: &mut BufferedLines| !state.has_work();
        let mut state = self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        state.writing = state.lines.len();
        (std::mem::take(&mut state.lines), std::mem::take(&mut state.dropped))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Writes nothing until it is released.
    struct Stalled(Receiver<()>, Sender<Vec<u8>>);

    impl Write for Stalled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            let _ = self.1.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stalls_blocks_nobody_and_what_does_not_fit_is_counted() {
        let ((go, wait), (tell, written)) = (channel(), channel());
        let mut log = LogWriter::start(Stalled(wait, tell)).unwrap();
        let line = [b"x".repeat(99), b"\n".to_vec()].concat();
        let fit = BUFFER / line.len();
        for _ in 0..fit + 10 {
            log.write_all(&line).unwrap();
        }
        assert_eq!(log.dropped(), 10);
        log.wait_written();
        drop(go);
        log.wait_written();
        let written: usize = written.try_iter().map(|bytes| bytes.len()).sum();
        assert_eq!(written, fit * line.len(), "whole lines, and all the others");
    }
}
