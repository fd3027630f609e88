//! Behaviours that nothing proves yet, each with the reason. None is dropped silently: a test counts all 150.

/// Number and reason.
pub const PENDING: &[(u16, &str)] = &[];

#[cfg(test)]
mod tests {
    use super::PENDING;
    use crate::elsewhere::ELSEWHERE;
    use omniheap_core::AnyBackend;
    use std::collections::BTreeSet;

    #[test]
    fn every_behaviour_is_proved_or_pending_and_none_is_both() {
        let cases = crate::cases::<AnyBackend>();
        let proved: BTreeSet<u16> = cases.iter().flat_map(|case| case.numbers).copied().collect();
        let listed = PENDING.iter().map(|(number, _)| *number);
        let listed: Vec<u16> = listed.chain(ELSEWHERE.iter().map(|(number, _)| *number)).collect();
        let unproved: BTreeSet<u16> = listed.iter().copied().collect();
        assert_eq!(unproved.len(), listed.len(), "listed once");
        assert!(proved.is_disjoint(&unproved), "{:?}", proved.intersection(&unproved));
        let all: Vec<u16> = proved.union(&unproved).copied().collect();
        assert_eq!(all, (1..=150).collect::<Vec<_>>(), "all 150, and no other");
    }

    #[test]
    fn every_case_has_its_own_name() {
        let cases = crate::cases::<AnyBackend>();
        let names: BTreeSet<_> = cases.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), cases.len());
        println!("{} cases", cases.len());
    }
}
