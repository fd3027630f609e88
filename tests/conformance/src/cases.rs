//! The list. One line per promise; one function per line.
use crate::case::Case;
use crate::world::Stack;
use omniheap_core::{Allocation, Backend, Error, ErrorKind, Manager, Request, Span};

macro_rules! list {
    ($($name:ident proves [$($number:literal),+] needs [$($need:ident),*];)*) => {
        vec![$(Case {
            name: stringify!($name),
            numbers: &[$($number),+],
            needs: &[$(Need::$need),*],
            check: $name::<B>,
        }),*]
    };
}

mod a_basics;
mod b_alignment;
mod c_sizes;
mod d_zero;
mod e_shortage;
mod f_budgets;
mod g_pools;
mod h_strategies;
mod i_defrag;
mod i_passes;
mod i_recall;
mod j_timelines;
mod k_mapping;
mod l_copies;
mod m_placement;
#[cfg(unix)]
mod n_export;
#[cfg(unix)]
mod n_registrable;
mod o_threads;
mod p_guards;
mod p_misuse;
mod q_statistics;
mod r_loss;
mod s_residue;
mod t_faults;
mod w_kernels;
mod x_sleep;

/// Every case, in the order a newcomer should read them.
pub(crate) fn all<B: Backend + 'static>() -> Vec<Case<B>> {
    let groups = vec![
        a_basics::list(),
        b_alignment::list(),
        c_sizes::list(),
        d_zero::list(),
        e_shortage::list(),
        f_budgets::list(),
        g_pools::list(),
        h_strategies::list(),
        i_defrag::list(),
        i_passes::list(),
        i_recall::list(),
        j_timelines::list(),
        k_mapping::list(),
        l_copies::list(),
        m_placement::list(),
        #[cfg(unix)]
        n_export::list(),
        #[cfg(unix)]
        n_registrable::list(),
        o_threads::list(),
        p_misuse::list(),
        p_guards::list(),
        q_statistics::list(),
        r_loss::list(),
        s_residue::list(),
        t_faults::list(),
        w_kernels::list(),
        x_sleep::list(),
    ];
    groups.into_iter().flatten().collect()
}

/// Returns the error kind of a call that must fail.
#[track_caller]
fn kind<T, E: Into<Error>>(result: Result<T, E>) -> ErrorKind {
    match result {
        Ok(_) => panic!("this must be refused"),
        Err(error) => error.into().kind(),
    }
}

/// Returns the place of an allocation: the number of its block, and its span.
fn place_of<B: Backend + 'static>(allocation: &Allocation<Stack<B>>) -> (u64, Span) {
    let binding = allocation.binding();
    (binding.block().id(), binding.span())
}

/// Fails when two of the allocations share a byte.
#[track_caller]
fn assert_disjoint<B: Backend + 'static>(live: &[Allocation<Stack<B>>]) {
    let mut places: Vec<_> =
        live.iter().map(place_of).map(|(id, span)| (id, span.offset, span.end())).collect();
    places.sort_unstable();
    for pair in places.windows(2) {
        assert!(
            pair[0].0 != pair[1].0 || pair[0].2 <= pair[1].1,
            "{:?} and {:?} overlap",
            pair[0],
            pair[1]
        );
    }
}

/// Allocates, or says what the manager said.
#[track_caller]
fn take<B: Backend + 'static>(
    manager: &Manager<Stack<B>>,
    request: &Request<'_>,
) -> Allocation<Stack<B>> {
    match manager.allocate(request) {
        Ok(allocation) => allocation,
        Err(error) => panic!("{} bytes must fit: {error}", request.layout.size),
    }
}

/// Fills a manager with pieces of `size` until it refuses; returns them and the refusal's kind.
fn fill_up<B: Backend + 'static>(
    manager: &Manager<Stack<B>>,
    request: &Request<'_>,
) -> (Vec<Allocation<Stack<B>>>, ErrorKind) {
    let mut all = Vec::new();
    loop {
        match manager.allocate(request) {
            Ok(one) => all.push(one),
            Err(error) => return (all, error.kind()),
        }
        assert!(all.len() < 100_000, "the limit does not hold");
    }
}
