//! Explores every reachable state of small worlds. The shipped code is the transition function.
//!
//! A [`World`] has states, steps and invariants. [`explore`] goes through its states breadth first, each once, and checks the
//! invariants after each step. So the first failure has one of the shortest paths, and its report contains that path as a test.
mod engine;
mod key;

pub use engine::{Broken, Figures, Limits, check, explore};
pub use key::Key;

use core::fmt::Debug;

/// A world that can be explored.
pub trait World: Sync {
    /// The shipped code with the model's books. It stays on the thread that made it.
    type State;
    /// One step.
    type Step: Clone + Debug + Ord + Send + Sync;

    /// Makes the first state. Every call makes an equal one.
    fn start(&self) -> Self::State;

    /// Returns every step that may be taken now.
    fn steps(&self, state: &Self::State) -> Vec<Self::Step>;

    /// Returns further steps from where a step began, now that it was taken: what may go wrong in each of its calls, say.
    fn also(&self, state: &Self::State, taken: &Self::Step) -> Vec<Self::Step> {
        let _ = (state, taken);
        Vec::new()
    }

    /// Takes a step with the shipped code and checks every invariant.
    ///
    /// # Errors
    ///
    /// A sentence that says which invariant is broken.
    fn take(&self, state: &mut Self::State, step: &Self::Step) -> Result<(), String>;

    /// Returns a canonical hash, which is equal for states that are alike. See [`Key`].
    fn key(&self, state: &Self::State) -> u128;

    /// Returns a path as a unit test that can be pasted.
    fn test(&self, path: &[Self::Step]) -> String;

    /// Takes a step that passed every check before. A world whose checks are dear leaves them out here.
    ///
    /// # Errors
    ///
    /// As for [`take`](Self::take).
    fn retake(&self, state: &mut Self::State, step: &Self::Step) -> Result<(), String> {
        self.take(state, step)
    }

    /// Ends a state that was reached for the first time, and checks what must hold then: that everything is given back, say.
    ///
    /// # Errors
    ///
    /// A sentence that says which invariant is broken.
    fn end(&self, state: Self::State) -> Result<(), String> {
        drop(state);
        Ok(())
    }

    /// Copies a state. `None` where the shipped code cannot be cloned: such a state is made again by its path.
    fn copy(&self, state: &Self::State) -> Option<Self::State> {
        let _ = state;
        None
    }
}
