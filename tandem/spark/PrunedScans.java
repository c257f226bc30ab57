package tandem.spark;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Has Spark read only the columns that a query uses. See pruning.py, which compiles and installs it.
 *
 * Written for Janino, the compiler that Spark brings: Java without lambdas and without generics.
 */
public class PrunedScans {

    public static final String MARK = "tandem.pruned";

    /**
     * Adds both rules to a session, once; `formats` are the short names of sources that know the mark.
     * Fails if this Spark is not as we know it: better here than in a query.
     */
    public void install(ExperimentalMethods session, List formats) throws NoSuchFieldException {
        PythonScan.class.getDeclaredField("ds");
        PythonScan.class.getDeclaredField("shortName");
        PythonScan.class.getDeclaredField("options");
        Iterator known = session.extraOptimizations().iterator();
        while (known.hasNext()) {
            if (known.next().getClass().getName().equals(Prune.class.getName())) {
                return;
            }
        }
        session.extraOptimizations_$eq(
            (Seq) session.extraOptimizations().appended(new Prune(formats)));
        session.extraStrategies_$eq(
            (Seq) session.extraStrategies().appended(new BareScan(formats)));
    }

    /** Says whether a relation is a batch scan of one of our sources. */
    static boolean isOurs(DataSourceV2ScanRelation relation, List formats) {
        return relation.scan() instanceof PythonScan
            && formats.contains(hidden(relation.scan(), "shortName"));
    }

    static Object hidden(Object owner, String name) {
        try {
            Field field = owner.getClass().getDeclaredField(name);
            field.setAccessible(true);
            return field.get(owner);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException("Spark has no " + name + " any more", error);
        }
    }

    static Seq list(List items) {
        return (Seq) CollectionConverters.asScala(items).toList();
    }

    /** Project and filters over a scan: the scan gives only what they refer to. */
    public static class Prune extends Rule {

        private final List formats;

        public Prune(List formats) {
            this.formats = formats;
        }

        public TreeNode apply(TreeNode plan) {
            return ((LogicalPlan) plan).transformDown(new AbstractPartialFunction() {
                public boolean isDefinedAt(Object node) {
                    return node instanceof Project;
                }

                public Object applyOrElse(Object node, Function1 otherwise) {
                    return node instanceof Project ? pruned((Project) node) : otherwise.apply(node);
                }
            });
        }

        private LogicalPlan pruned(Project project) {
            ArrayList conditions = new ArrayList();
            AttributeSet wanted = project.references();
            LogicalPlan leaf = project.child();
            while (leaf instanceof Filter) {
                conditions.add(0, ((Filter) leaf).condition());
                wanted = wanted.$plus$plus(leaf.references());
                leaf = ((Filter) leaf).child();
            }
            if (!(leaf instanceof DataSourceV2ScanRelation)
                    || !isOurs((DataSourceV2ScanRelation) leaf, formats)) {
                return project;
            }
            DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) leaf;
            List columns = chosen(project, relation.output(), wanted, conditions.isEmpty());
            if (columns.size() == relation.output().size()) {
                return project;
            }
            LogicalPlan result = narrower(relation, columns);
            for (int i = 0; i < conditions.size(); i++) {
                result = new Filter(
                    (org.apache.spark.sql.catalyst.expressions.Expression) conditions.get(i), result);
            }
            boolean same = conditions.isEmpty() && project.projectList().equals(list(columns));
            return same ? result : project.copy(project.projectList(), result);
        }

        /** The columns to read, in the order of the project where that makes it needless. */
        private List chosen(Project project, Seq output, AttributeSet wanted, boolean bare) {
            List columns = new ArrayList();
            if (bare && project.projectList().toSet().size() == wanted.size()) {
                Iterator named = project.projectList().iterator();
                while (named.hasNext()) {
                    Object one = named.next();
                    if (one instanceof AttributeReference && output.contains(one)) {
                        columns.add(one);
                    }
                }
            }
            if (columns.size() == wanted.size() && !columns.isEmpty()) {
                return columns;
            }
            columns.clear();
            AttributeReference cheap = null;
            Iterator all = output.iterator();
            while (all.hasNext()) {
                AttributeReference one = (AttributeReference) all.next();
                if (wanted.contains(one)) {
                    columns.add(one);
                }
                if (cheap == null || !(cheap.dataType() instanceof NumericType)) {
                    cheap = one;
                }
            }
            if (columns.isEmpty()) {
                columns.add(cheap);  // rows are counted: Arrow needs a column to say how many
            }
            return columns;
        }

        private DataSourceV2ScanRelation narrower(DataSourceV2ScanRelation relation, List columns) {
            Object scan = relation.scan();
            PythonDataSourceV2 source = (PythonDataSourceV2) hidden(scan, "ds");
            String name = (String) hidden(scan, "shortName");
            CaseInsensitiveStringMap options = (CaseInsensitiveStringMap) hidden(scan, "options");
            StructType whole = relation.scan().readSchema();
            StructType part = schema(columns);
            PythonDataSourceCreationResult made =
                source.getOrCreateDataSourceInPython(name, options, Option.apply(whole));
            // Planned once a load, whatever is read of it: the table stays a snapshot.
            PythonDataSourceReadInfo planned =
                source.getOrCreateReadInfo(name, options, whole, false);
            PythonDataSourceReadInfo reading =
                source.source().createReadInfoInPython(made, part, false);
            PythonDataSourceV2 narrow = new PythonDataSourceV2();
            narrow.setShortName(name);
            narrow.setReadInfo(
                new PythonDataSourceReadInfo(reading.func(), planned.partitions()));
            PythonScan pruned = new PythonScan(
                narrow, name, part, options, new org.apache.spark.sql.sources.Filter[0]);
            return relation.copy(
                relation.relation(),
                pruned,
                list(columns),
                relation.keyGroupedPartitioning(),
                relation.ordering(),
                relation.pushedFilters(),
                relation.mergeableScan());
        }

        private static StructType schema(List columns) {
            Metadata mark = new MetadataBuilder().putBoolean(MARK, true).build();
            StructField[] fields = new StructField[columns.size()];
            for (int i = 0; i < fields.length; i++) {
                AttributeReference one = (AttributeReference) columns.get(i);
                fields[i] = new StructField(one.name(), one.dataType(), one.nullable(), mark);
            }
            return new StructType(fields);
        }
    }

    /** Plans a scan with nothing over it without the projection that Spark adds: rows are flat. */
    public static class BareScan extends SparkStrategy {

        private final List formats;

        public BareScan(List formats) {
            this.formats = formats;
        }

        public Seq apply(LogicalPlan plan) {
            if (!(plan instanceof DataSourceV2ScanRelation)
                    || !isOurs((DataSourceV2ScanRelation) plan, formats)) {
                return (Seq) Nil$.MODULE$;
            }
            DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) plan;
            ArrayList plans = new ArrayList();
            plans.add(new BatchScanExec(
                relation.output(),
                relation.scan(),
                (Seq) Nil$.MODULE$,
                relation.ordering(),
                relation.relation().table(),
                relation.keyGroupedPartitioning()));
            return list(plans);
        }
    }
}
