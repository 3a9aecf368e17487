//! Calls that are made together: what is asked while a call is under way waits for its end and then goes as one, so that
//! many who ask for little cost the server hardly more than one who asks for much.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eclusa_core::StoreError;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::functions::Function;
use super::pack::list;
use super::{MAX_ITEMS, Server};

/// How many questions may wait. Whoever comes then is told to come later.
const MAX_WAITING: usize = 10_000;

/// One verb, whose function takes a list and answers each item for itself.
pub(super) struct Together<A> {
    server: Arc<Server>,
    function: &'static Function,
    read: fn(&[u8]) -> Result<Vec<A>, StoreError>,
    /// How long an answer may take, the wait for the call before included.
    within: Duration,
    queue: Mutex<Queue<A>>,
}

struct Queue<A> {
    waiting: VecDeque<Question<A>>,
    /// Whether somebody takes care of those who wait.
    served: bool,
}

struct Question<A> {
    /// Packed, at most [`MAX_ITEMS`].
    items: Vec<Vec<u8>>,
    answer: oneshot::Sender<Result<Vec<A>, StoreError>>,
}

impl<A: Send + 'static> Together<A> {
    pub(super) fn new(
        server: &Arc<Server>,
        function: &'static Function,
        within: Duration,
        read: fn(&[u8]) -> Result<Vec<A>, StoreError>,
    ) -> Arc<Self> {
        let queue = Mutex::new(Queue { waiting: VecDeque::new(), served: false });
        Arc::new(Self { server: server.clone(), function, read, within, queue })
    }

    /// The answers to `items`, one for each.
    pub(super) async fn ask(self: &Arc<Self>, mut items: Vec<Vec<u8>>) -> Result<Vec<A>, StoreError> {
        let mut answers = Vec::new();
        while !items.is_empty() {
            let rest = items.split_off(items.len().min(MAX_ITEMS));
            answers.extend(self.ask_some(items).await?);
            items = rest;
        }
        Ok(answers)
    }

    async fn ask_some(self: &Arc<Self>, items: Vec<Vec<u8>>) -> Result<Vec<A>, StoreError> {
        let (answer, told) = oneshot::channel();
        self.line_up(Question { items, answer })?;
        match timeout(self.server.patience(self.within), told).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(unavailable("the call was given up")),
            Err(_) => Err(unavailable("it did not answer in time")),
        }
    }

    fn line_up(self: &Arc<Self>, question: Question<A>) -> Result<(), StoreError> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.waiting.len() >= MAX_WAITING {
            return Err(unavailable("too many wait for it"));
        }
        queue.waiting.push_back(question);
        if !queue.served {
            queue.served = true;
            // A task of its own: whoever asked may go away, and the others still wait.
            tokio::spawn(self.clone().serve());
        }
        Ok(())
    }

    /// One call after the other until nobody waits.
    async fn serve(self: Arc<Self>) {
        while let Some(questions) = self.next_call() {
            match self.call(&questions).await {
                Ok(answers) => {
                    let mut answers = answers.into_iter();
                    for question in questions {
                        let own = answers.by_ref().take(question.items.len()).collect();
                        let _ = question.answer.send(Ok(own));
                    }
                }
                Err(error) => questions.into_iter().for_each(|question| {
                    let _ = question.answer.send(Err(error.clone()));
                }),
            }
        }
    }

    async fn call(&self, questions: &[Question<A>]) -> Result<Vec<A>, StoreError> {
        let items: Vec<_> = questions.iter().flat_map(|question| &question.items).collect();
        let told = self.server.run_packed(self.function, &list(&items), self.within).await?;
        let answers = (self.read)(&told)?;
        if answers.len() == items.len() {
            Ok(answers)
        } else {
            Err(unavailable("it did not answer everything"))
        }
    }

    /// Those who go together next. Whoever gave up waiting does not.
    fn next_call(&self) -> Option<Vec<Question<A>>> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut questions, mut items) = (Vec::new(), 0);
        while let Some(next) = queue.waiting.front()
            && (items + next.items.len() <= MAX_ITEMS || next.answer.is_closed())
        {
            let next = queue.waiting.pop_front()?;
            if !next.answer.is_closed() {
                items += next.items.len();
                questions.push(next);
            }
        }
        queue.served = !questions.is_empty();
        queue.served.then_some(questions)
    }
}

fn unavailable(cause: &str) -> StoreError {
    StoreError::Unavailable { cause: cause.into() }
}
