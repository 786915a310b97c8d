//! The founder as the source: only for the machine that upgrades itself, a few files at once, with the engine and the faults of a mirror.

use lab_founder::config::Supply;
use lab_founder::{Config, Evil, LabFounder, Request, Scripted, Step};
use serde_json::json;
use stratum_join::founder::Client;
use stratum_join::identity::Identity;
use stratum_join::protocol::code::JoinCode;
use stratum_join::protocol::encoding::Pin;
use stratum_join::protocol::pairing::commitment;
use stratum_join::protocol::url::{Endpoint, Host};
use stratum_join::protocol::wire::{Intent, JoinId, RegistrationRequest};
use stratum_join::upgrade::manifest::Form;
use stratum_join::upgrade::plan::Waiting;
use stratum_join::upgrade::source::FounderSource;

use super::release::{Maker, check, key};
use super::*;

/// A founder that gives a release, and a machine that is registered with it.
struct Joined {
    founder: LabFounder,
    identity: Arc<Identity>,
    endpoint: Endpoint,
    pins: Vec<Pin>,
    join_id: JoinId,
}

impl Joined {
    /// As a machine of this release; what the founder gives lies in the lab.
    fn of(lab: &Lab, release: &str, change: impl FnOnce(&mut Config)) -> Self {
        // Unsigned releases are not given out; this founder looks no further than that there is a signature.
        fs::create_dir_all(lab.release().join("payload")).unwrap();
        fs::write(lab.release().join("payload/manifest.json"), b"{}").unwrap();
        fs::write(lab.release().join("payload/manifest.json.minisig"), b"x").unwrap();
        let mut config =
            Config { supply: Supply::Founder, release_dir: Some(lab.release()), ..Config::for_tests() };
        change(&mut config);
        Self::with(release, config)
    }

    /// As a machine of this release.
    fn with(release: &str, config: Config) -> Self {
        let founder = LabFounder::start_now(config).unwrap();
        let made = Request {
            bearer: Some(founder.token().to_owned()),
            ..Request::send("POST", "/v1/admin/cluster/join-codes", &json!({}))
        };
        let made = founder.core().dispatch_admin(founder.now_ms(), &made).value();
        let code = JoinCode::parse(made["code"].as_str().unwrap()).unwrap();
        let addr = founder.join_addr();
        let endpoint = Endpoint { host: Host::Ip(addr.ip()), port: addr.port() };
        let identity = Arc::new(Identity::ephemeral().unwrap());
        let client = Client::new(Arc::clone(&identity));
        let (pins, join_id) = block_on(async {
            let ca = client.observe(&endpoint, &[]).await.unwrap().ca;
            let proven = client.prove(&endpoint, ca, &code, Intent::Register).await.unwrap();
            let commit = commitment(&proven.fresh_nonce.0);
            client.confirm(&endpoint, ca, proven.proof_id, Some(commit)).await.unwrap();
            let body = RegistrationRequest {
                proof_id: Some(proven.proof_id),
                pairing_nonce: Some(proven.fresh_nonce.0),
                release: release.into(),
                self_upgrade: true,
                hostname: "node-2".into(),
                serial: String::new(),
                agent: "0.1.0".into(),
                boot_id: "1b4e28ba-2fa1-41d2-883f-0016d3cca427".into(),
                inventory: serde_json::value::RawValue::from_string("{}".into()).unwrap(),
            };
            let registered = client.register(&endpoint, &[ca], &body).await.unwrap();
            (vec![ca], registered.value.join_id)
        });
        Self { founder, identity, endpoint, pins, join_id }
    }

    fn source(&self) -> Source {
        self.source_as(&self.identity)
    }

    fn source_as(&self, identity: &Arc<Identity>) -> Source {
        let client = Arc::new(Client::new(Arc::clone(identity)));
        Source::Founder(FounderSource::new(
            client,
            self.endpoint.clone(),
            self.pins.clone(),
            self.join_id.clone(),
        ))
    }

    fn host(&self) -> String {
        self.endpoint.to_string()
    }
}

#[test]
fn the_founder_gives_its_release_to_the_machine_that_upgrades_itself() {
    let lab = Lab::new();
    let joined = Joined::of(&lab, "0.6.0", |_| {});
    let fetched = lab.fetch_from(joined.source(), STEADY, |progress| assert!(progress.streams <= 2)).unwrap();
    lab.look();
    assert_eq!(fetched.progress.fetched, lab.total());
}

#[test]
fn a_founder_with_a_rate_gives_each_file_no_faster() {
    let lab = Lab::with(&[("os/root", CHUNK)]);
    let joined = Joined::of(&lab, "0.6.0", |config| config.limits.transfer_rate = 4 * CHUNK);
    let begin = std::time::Instant::now();
    lab.fetch_from(joined.source(), STEADY, |_| {}).unwrap();
    lab.look();
    // A quarter of a second, but for the first piece.
    assert!(begin.elapsed() >= std::time::Duration::from_millis(200), "{:?}", begin.elapsed());
}

/// The whole way, as from a mirror: the release is looked for, checked, and fetched.
#[test]
fn a_release_that_the_founder_gives_is_checked_as_that_of_a_mirror() {
    let maker = Maker::new();
    let release = maker.release("0.7.0", 70, &[key(2)]);
    let config =
        Config { supply: Supply::Founder, release_dir: Some(release.clone()), ..Config::for_tests() };
    let joined = Joined::with("0.6.0", config);
    let find = |n| block_on(joined.source().release(check(maker.os_keys(&[&key(n)]), "0.7.0")));
    let fault = find(1).map(drop).unwrap_err();
    says(&fault, Code::KeyUnknown, "before a release-signing key rotation", "newer ISO");
    let verified = find(2).unwrap();
    assert_eq!(verified.bytes(), fs::read(release.join("payload/manifest.json")).unwrap());
    let wants: Vec<FileEntry> = verified.wanted(Form::Ab).into_iter().cloned().collect();
    let root = release.join(wants.iter().max_by_key(|want| want.size).unwrap().path.as_str());
    let lab = Lab { dir: tempfile::tempdir().unwrap(), wants };
    let good = fs::read(&root).unwrap();
    let mut flipped = good.clone();
    flipped[usize::try_from(CHUNK).unwrap() + 7] ^= 1;
    fs::write(&root, flipped).unwrap();
    let fault = lab.fetch_from(joined.source(), FAST, |_| {}).unwrap_err();
    let what = format!("from {} does not match the signed manifest.", joined.host());
    says(&fault, Code::Hash, &what, "Repair the founder's release directory.");
    fs::write(&root, good).unwrap();
    let fetched = lab.fetch_from(joined.source(), STEADY, |_| {}).unwrap();
    lab.look();
    assert!(fetched.progress.kept >= CHUNK);
}

#[test]
fn a_machine_in_another_state_and_a_foreign_key_get_nothing() {
    let lab = Lab::new();
    let same = Joined::of(&lab, "0.7.0", |_| {});
    let fault = lab.fetch_from(same.source(), FAST, |_| {}).unwrap_err();
    says(
        &fault,
        Code::SourceStatus,
        &format!("{} answered 409 for", same.host()),
        "founder's release directory",
    );
    let joined = Joined::of(&lab, "0.6.0", |_| {});
    let foreign = joined.source_as(&Arc::new(Identity::ephemeral().unwrap()));
    let fault = lab.fetch_from(foreign, FAST, |_| {}).unwrap_err();
    says(&fault, Code::SourceStatus, "answered 404 for", "founder's release directory");
}

#[test]
fn a_directory_without_a_signature_is_not_given_out() {
    let lab = Lab::new();
    let joined = Joined::of(&lab, "0.6.0", |_| {});
    fs::remove_file(lab.release().join("payload/manifest.json.minisig")).unwrap();
    let fault = lab.fetch_from(joined.source(), FAST, |_| {}).unwrap_err();
    says(&fault, Code::SourceStatus, "answered 404 for", "");
}

#[test]
fn paths_with_tricks_and_links_are_not_found() {
    let lab = Lab::with(&[("os/kernel", 5)]);
    let joined = Joined::of(&lab, "0.6.0", |_| {});
    std::os::unix::fs::symlink("/etc/passwd", lab.release().join("os/link")).unwrap();
    std::os::unix::fs::symlink("/etc", lab.release().join("etc")).unwrap();
    let source = joined.source();
    let peer =
        lab_founder::Peer { client_fp: joined.identity.client_fp(), addr: "127.0.0.1".parse().unwrap() };
    let status = |path: &str| {
        let path = format!("/v1/join/registrations/{}/release/{path}", joined.join_id);
        joined.founder.core().dispatch(joined.founder.now_ms(), peer, &Request::get(&path)).status
    };
    assert_eq!(status("os/kernel"), 200);
    for bad in [
        "os/link",
        "etc/passwd",
        "os/../os/kernel",
        "os//kernel",
        "os/%6bernel",
        "",
        "os",
        "os/kernel/",
        "./os/kernel",
    ] {
        assert_eq!(status(bad), 404, "{bad}");
    }
    drop(source);
}

#[test]
fn ranges_and_tags_are_as_the_protocol_says() {
    let lab = Lab::with(&[("os/kernel", 10)]);
    let joined = Joined::of(&lab, "0.6.0", |_| {});
    let peer =
        lab_founder::Peer { client_fp: joined.identity.client_fp(), addr: "127.0.0.1".parse().unwrap() };
    let ask = |path: &str, range: Option<&str>, if_range: Option<&str>| {
        let path = format!("/v1/join/registrations/{}/release/{path}", joined.join_id);
        let request = Request {
            range: range.map(str::to_owned),
            if_range: if_range.map(str::to_owned),
            ..Request::get(&path)
        };
        let response = joined.founder.core().dispatch(joined.founder.now_ms(), peer, &request);
        let header = |name: &str| {
            response
                .headers
                .iter()
                .find(|(n, _)| *n == name)
                .map_or(String::new(), |(_, value)| value.clone())
        };
        let len = response.file.as_ref().map_or(0, lab_founder::FileBody::left);
        (response.status, header("content-range"), len, header("etag"))
    };
    let kernel = |range| {
        let (status, range, len, _) = ask("os/kernel", range, None);
        (status, range, len)
    };
    assert_eq!(kernel(None), (200, String::new(), 10));
    assert_eq!(kernel(Some("bytes=2-4")), (206, "bytes 2-4/10".to_owned(), 3));
    assert_eq!(kernel(Some("bytes=2-")), (206, "bytes 2-9/10".to_owned(), 8));
    assert_eq!(kernel(Some("bytes=2-99")), (206, "bytes 2-9/10".to_owned(), 8));
    assert_eq!(kernel(Some("bytes=10-")), (416, "bytes */10".to_owned(), 0));
    for whole in ["bytes=0-1,3-4", "bytes=-3", "items=0-1", "bytes=4-2"] {
        assert_eq!(kernel(Some(whole)), (200, String::new(), 10), "{whole}");
    }
    let (_, _, _, tag) = ask("payload/manifest.json", None, None);
    assert!(tag.starts_with("\"sha256-"), "{tag}");
    assert_eq!(ask("payload/manifest.json", Some("bytes=0-0"), Some(&tag)).0, 206);
    assert_eq!(ask("payload/manifest.json", Some("bytes=0-0"), Some("\"other\"")).0, 200);
}

#[test]
fn a_third_transfer_of_one_machine_is_told_to_come_back_and_that_is_no_failure() {
    let lab = Lab::with(&[("os/a", CHUNK), ("os/b", CHUNK), ("os/c", CHUNK)]);
    let joined = Joined::of(&lab, "0.6.0", |_| {});
    let peer =
        lab_founder::Peer { client_fp: joined.identity.client_fp(), addr: "127.0.0.1".parse().unwrap() };
    let ask = || {
        let path = format!("/v1/join/registrations/{}/release/os/a", joined.join_id);
        joined.founder.core().dispatch(joined.founder.now_ms(), peer, &Request::get(&path))
    };
    let (first, second) = (ask(), ask());
    assert_eq!((first.status, second.status), (200, 200));
    let third = ask();
    assert_eq!((third.status, third.code().as_str()), (503, "RELEASE_BUSY"));
    assert!(third.headers.contains(&("retry-after", "5".to_owned())));
    // Somebody else holds both places; a machine that upgrades itself waits and goes on when they are free.
    let mut held = Some((first, second));
    let mut waited = false;
    let fetched = lab.fetch_from(joined.source(), STEADY, |progress| {
        if progress.waiting == Some(Waiting::Busy) {
            waited = true;
            held = None;
        }
    });
    assert!(fetched.is_ok() && waited, "{fetched:?}");
    lab.look();
}

#[test]
fn a_founder_that_breaks_off_costs_at_most_a_chunk_of_each_stream() {
    let lab = Lab::with(&[("os/root", 5 * CHUNK)]);
    let joined = Joined::of(&lab, "0.6.0", |_| {});
    let scripted = |evil| Scripted { evil, at: Step::Release, skip: 0, times: Some(1) };
    joined.founder.core().set_evil(vec![scripted(Evil::ResetBeforeAnswer), scripted(Evil::HalfClose)]);
    let fetched = lab.fetch_from(joined.source(), STEADY, |_| {}).unwrap();
    lab.look();
    assert!(fetched.progress.fetched <= lab.total() + 2 * CHUNK);
}

#[test]
fn a_founder_never_redirects() {
    let lab = Lab::with(&[("os/kernel", 5)]);
    let joined = Joined::of(&lab, "0.6.0", |_| {});
    joined.founder.core().set_evil(vec![Scripted {
        evil: Evil::Redirect,
        at: Step::Release,
        skip: 0,
        times: None,
    }]);
    let fault = lab.fetch_from(joined.source(), FAST, |_| {}).unwrap_err();
    says(&fault, Code::SourceRefused, "redirects, which a founder never does", "what answers at the founder");
}

#[test]
fn another_cluster_at_the_address_gives_nothing() {
    let lab = Lab::with(&[("os/kernel", 5)]);
    let joined = Joined::of(&lab, "0.6.0", |_| {});
    joined.founder.core().set_evil(vec![Scripted {
        evil: Evil::OtherJoinCa,
        at: Step::Any,
        skip: 0,
        times: None,
    }]);
    let fault = lab.fetch_from(joined.source(), FAST, |_| {}).unwrap_err();
    says(&fault, Code::SourceTls, "is not the pinned one", "which cluster answers");
}

#[test]
fn what_a_mirror_gave_is_not_fetched_from_the_founder_again() {
    let lab = Lab::with(&[("os/root", 4 * CHUNK)]);
    let mirror =
        lab.mirror(&[Fault::times(MirrorFault::Cut(2 * CHUNK + 5), 1), Fault::always(MirrorFault::Silent)]);
    lab.fetch(&mirror, FAST).unwrap_err();
    let joined = Joined::of(&lab, "0.6.0", |_| {});
    let fetched = lab.fetch_from(joined.source(), STEADY, |_| {}).unwrap();
    lab.look();
    assert_eq!((fetched.progress.kept, fetched.progress.fetched), (2 * CHUNK, 2 * CHUNK));
}
