use super::*;
use omniheap::placement::{
    Coherence, Contents, Grow, Keyword, Mobility, Privacy, Sharing, Spill, Substitution,
};

fn plain() -> OmniheapRequest {
    omniheap_request_default(64)
}

fn understood<'a>(asked: OmniheapRequest) -> Request<'a> {
    // SAFETY: a live request without a name.
    unsafe { read(&raw const asked) }.expect("every number stands for something").request
}

#[test]
fn the_usual_request_is_that_of_the_core() {
    assert_eq!(understood(plain()), Request::new(64));
}

#[test]
fn every_number_is_the_word_that_its_constant_names() {
    let patterns = [
        (OMNIHEAP_PATTERN_COALESCED, Pattern::Coalesced),
        (OMNIHEAP_PATTERN_BROADCAST, Pattern::Broadcast),
        (OMNIHEAP_PATTERN_GATHERED, Pattern::Gathered),
        (OMNIHEAP_PATTERN_TILED, Pattern::Tiled),
        (OMNIHEAP_PATTERN_UNIFORM, Pattern::Uniform),
        (OMNIHEAP_PATTERN_RECORDS, Pattern::Records),
        (OMNIHEAP_PATTERN_FIELDS, Pattern::Fields),
    ];
    assert_eq!(patterns.len(), Pattern::WORDS.len(), "a pattern has no number");
    for (pattern, word) in patterns {
        assert_eq!(understood(OmniheapRequest { pattern, ..plain() }).pattern, word);
    }
    let writers = [
        (OMNIHEAP_WRITER_DEVICE, Writer::Device),
        (OMNIHEAP_WRITER_HOST_ONCE, Writer::HostOnce),
        (OMNIHEAP_WRITER_HOST_PER_FRAME, Writer::HostPerFrame),
    ];
    assert_eq!(writers.len(), Writer::WORDS.len(), "a writer has no number");
    for (writer, word) in writers {
        assert_eq!(understood(OmniheapRequest { writer, ..plain() }).writer, word);
    }
    let accesses = [
        (OMNIHEAP_ACCESS_DEVICE, Access::Device),
        (OMNIHEAP_ACCESS_HOST, Access::Host),
        (OMNIHEAP_ACCESS_BOTH, Access::Both),
    ];
    for (access, word) in accesses {
        assert_eq!(understood(OmniheapRequest { access, ..plain() }).access, word);
    }
    let lifetimes = [
        (OMNIHEAP_LIFETIME_PERSISTENT, Lifetime::Persistent),
        (OMNIHEAP_LIFETIME_FRAME, Lifetime::Frame),
        (OMNIHEAP_LIFETIME_KERNEL, Lifetime::Kernel),
    ];
    for (lifetime, word) in lifetimes {
        assert_eq!(understood(OmniheapRequest { lifetime, ..plain() }).lifetime, word);
    }
}

#[test]
fn what_kernels_do_has_numbers_too() {
    let works = [(OMNIHEAP_WORK_ANY, Work::Any), (OMNIHEAP_WORK_LIGHT, Work::Light)];
    assert_eq!(works.len(), Work::WORDS.len(), "a kind of work has no number");
    for (work, word) in works {
        assert_eq!(understood(OmniheapRequest { work, ..plain() }).work, word);
    }
    let dependences = [
        (OMNIHEAP_DEPENDENCE_ANY, Dependence::Any),
        (OMNIHEAP_DEPENDENCE_INDEPENDENT, Dependence::Independent),
        (OMNIHEAP_DEPENDENCE_CHAINED, Dependence::Chained),
    ];
    assert_eq!(dependences.len(), Dependence::WORDS.len(), "a dependence has no number");
    for (dependence, word) in dependences {
        assert_eq!(understood(OmniheapRequest { dependence, ..plain() }).dependence, word);
    }
}

#[test]
fn every_flag_changes_what_it_names() {
    let with = |flags: u32| understood(OmniheapRequest { flags, ..plain() });
    assert_eq!(with(OMNIHEAP_DEDICATED).sharing, Sharing::Dedicated);
    assert_eq!(with(OMNIHEAP_PINNED).mobility, Mobility::Pinned);
    assert_eq!(with(OMNIHEAP_MOVED_ON_CONSENT).mobility, Mobility::OnConsent);
    assert_eq!(with(OMNIHEAP_NO_GROW).grow, Grow::Never);
    assert_eq!(with(OMNIHEAP_COHERENT).coherence, Coherence::Needed);
    assert_eq!(with(OMNIHEAP_NO_SUBSTITUTE).substitution, Substitution::Forbidden);
    assert_eq!(with(OMNIHEAP_MAY_SPILL).spill, Spill::Allowed);
    assert_eq!(with(OMNIHEAP_ZEROED).contents, Contents::Zero);
    let registrable = with(OMNIHEAP_REGISTRABLE | OMNIHEAP_MOVED_ON_CONSENT);
    assert_eq!(registrable, Request::new(64).registrable());
    let secret = with(OMNIHEAP_SECRET | OMNIHEAP_MOVED_ON_CONSENT);
    assert_eq!((secret.privacy, secret.mobility), (Privacy::Secret, Mobility::Pinned));
}

#[test]
fn the_other_fields_arrive() {
    let asked = OmniheapRequest {
        align: 512,
        touches: 48,
        reuse: 7,
        tag: 65_535,
        heap: 1,
        timeline: 3,
        class_: OMNIHEAP_CLASS_TILED,
        ..plain()
    };
    let expected = Request::new(64)
        .align(Align::of(512))
        .touches(48)
        .reuse(7)
        .tag(Tag(65_535))
        .heap(HeapId(1))
        .on(TimelineId(3))
        .class(Class::Tiled);
    assert_eq!(understood(asked), expected);
    assert_eq!(understood(OmniheapRequest { touches: 1, ..plain() }), Request::new(64).touches(1));
}
