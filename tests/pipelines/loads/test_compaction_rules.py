"""Which files become one, and how often is a record written again?"""

import itertools

import pytest
from hypothesis import given, strategies as st

from bradbury.pipelines.loads.compaction import (
    CompactionRules,
    TableFile,
    compaction_rules,
    file_groups,
)

FILES = st.lists(
    st.tuples(st.integers(1, 300), st.sampled_from(["a", "b", None])), max_size=40
).map(lambda found: [TableFile(f"{n:03}", size, folder) for n, (size, folder) in enumerate(found)])
RULES = st.builds(CompactionRules, st.integers(1, 300), st.integers(2, 9), st.booleans())


@given(FILES, RULES)
def test_a_file_is_in_one_group_of_its_folder_which_is_no_larger_than_the_target(
    files: list[TableFile], rules: CompactionRules
) -> None:
    groups = file_groups(files, rules, None)
    grouped = [file for group in groups for file in group]
    assert len(set(grouped)) == len(grouped)
    assert set(grouped) <= set(files)
    for group in groups:
        assert len(group) >= 2
        assert len({file.folder for file in group}) == 1
        assert sum(file.size for file in group) <= rules.target_file_size_bytes
        assert group == sorted(group)
    asked = file_groups(files, rules, {"a"})
    assert asked == [group for group in groups if group[0].folder == "a"]


@given(FILES, st.integers(1, 300))
def test_what_is_compacted_on_its_own_leaves_no_two_files_that_would_fit_together(
    files: list[TableFile], target: int
) -> None:
    rules = CompactionRules(target, 2, is_part_of_load=False)
    groups = file_groups(files, rules, None)
    grouped = {file for group in groups for file in group}
    for folder in ("a", "b", None):
        rest = [f for f in files if f.folder == folder and f not in grouped]
        small = [file for file in rest if file.size < target * 3 // 4]
        for one, next_one in itertools.pairwise(small):
            between = [file for file in files if one.path < file.path < next_one.path]
            if not [file for file in between if file.folder == folder]:
                assert one.size + next_one.size > target


@pytest.mark.parametrize("min_files", [2, 8])
def test_in_a_load_files_stay_few_and_a_record_is_written_again_a_few_times(min_files: int) -> None:
    rules = CompactionRules(10_000, min_files)
    files: list[TableFile] = []
    written_again = 0
    for number in range(4_000):
        files.append(TableFile(f"{number:05}", 10, "today"))
        for group in file_groups(files, rules, {"today"}):
            size = sum(file.size for file in group)
            written_again += size
            files = [file for file in files if file not in group]
            files.append(TableFile(f"{number:05}-{group[0].path}", size, "today"))
        small = [file for file in files if file.size < 7_500]
        assert len(small) < min_files + 10
    assert sum(file.size for file in files) == 40_000
    assert written_again <= 10 * 40_000


def test_numbers_that_cannot_be_are_refused() -> None:
    for compact, after, size in ((False, 1, 1), (False, -1, 1), (True, 0, 1), (True, None, 0)):
        with pytest.raises(ValueError, match="use|no compaction"):
            compaction_rules("parquet", compact, after, size)
    assert compaction_rules("parquet", False, None, 1) is None
    assert compaction_rules("iceberg", False, None, 1) is None
    assert compaction_rules("delta", False, None, 1) == CompactionRules(1, 8)
    assert compaction_rules("delta", False, 0, 1) is None
    assert compaction_rules("parquet", True, None, 5) == CompactionRules(5, 2, False)
