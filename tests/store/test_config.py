from store.config import StoreConfig


def test_the_commit_log_lies_in_the_directory_unless_told_otherwise() -> None:
    assert StoreConfig("/s").commit_log_directories == ("/s/commitlog",)
    paths = ("/a/commitlog", "/b/commitlog")
    assert StoreConfig("/s", store_path_commit_log=paths).commit_log_directories == paths
